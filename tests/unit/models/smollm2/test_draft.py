"""The draft's file format, its vocabulary, its batches and the held-out prompts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from models.smollm2 import prompts
from models.smollm2.batches import Talk, columns_of, join
from models.smollm2.draft import load_draft, make_draft, save_draft
from models.smollm2.held_out import read_held_out
from models.smollm2.measure import answer_chances
from models.smollm2.vocabulary import choose_output_tokens

from .conftest import Tiny

OUTPUTS = [1, 2, 5, 8, 13, 21, 34]


def talk(temperature: float) -> Talk:
    return Talk(
        token_ids=np.array([3, 4, 5, 8, 13], dtype=np.uint16),
        places=np.array([1, 2, 3]),
        top_ids=np.array([[5, 6], [8, 9], [14, 13]], dtype=np.uint16),
        top_logs=np.log(np.array([[0.6, 0.3], [0.7, 0.2], [0.5, 0.4]], dtype=np.float16)),
        temperature=temperature,
        number=0,
    )


def test_saved_draft_says_the_same_and_has_no_embeddings(tiny: Tiny, tmp_path: Path) -> None:
    config, weights = tiny
    draft = make_draft(config, weights, [0, 2])
    save_draft(draft, OUTPUTS[::-1], tmp_path)
    loaded, ids = load_draft(tmp_path, weights["model.embed_tokens.weight"])
    assert ids == OUTPUTS
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["embeddings_of"] == "smollm2"
    assert written["num_hidden_layers"] == 2
    assert (tmp_path / "model.safetensors").stat().st_size < 2 * sum(p.numel() for p in draft.trained().values()) + 4096
    token_ids = torch.tensor([[3, 4, 5]])
    with torch.inference_mode():
        assert (draft(token_ids) - loaded(token_ids)).abs().max() < 0.02  # rounding to bf16
    assert not any("embed" in name for name in draft.trained())


def test_padding_on_the_right_changes_nothing(tiny: Tiny) -> None:
    draft = make_draft(*tiny, [0, 1])
    with torch.inference_mode():
        alone, padded = draft(torch.tensor([[3, 4, 5]])), draft(torch.tensor([[3, 4, 5, 0, 0], [7, 8, 9, 10, 11]]))
    assert torch.allclose(alone[0], padded[0, :3], atol=1e-4)


def test_a_batch_has_the_positions_before_the_answer() -> None:
    batch = join([talk(1.0), talk(0.0)], columns_of(OUTPUTS, 96))
    assert batch.places.tolist() == [1, 2, 3, 6, 7, 8]
    assert batch.teacher.cold.tolist() == [False] * 3 + [True] * 3
    assert batch.teacher.probabilities[0].tolist() == pytest.approx([0.6, 0], abs=1e-3)
    assert batch.teacher.columns[0, 0] == OUTPUTS.index(5)


def test_chances_are_those_of_the_target_s_tokens(tiny: Tiny) -> None:
    draft = make_draft(*tiny, [0, 1])
    chances, overlaps = answer_chances(draft, OUTPUTS, talk(1.0))
    with torch.inference_mode():
        hidden = draft(torch.tensor([[3, 4, 5, 8, 13]]))[0, 1:4]
    q = (hidden.bfloat16() @ draft.embeddings[OUTPUTS].mT).float().softmax(-1)
    wanted = [min(1, float(q[i, OUTPUTS.index(t)]) / p) for i, (t, p) in enumerate([(5, 0.6), (8, 0.7), (13, 0.4)])]
    assert chances == pytest.approx(wanted, abs=1e-2)
    shared = [min(0.6, float(q[0, 2])), min(0.7, float(q[1, 3])), min(0.4, float(q[2, 4]))]
    assert overlaps == pytest.approx(shared, abs=1e-2)
    cold, _ = answer_chances(draft, OUTPUTS, talk(0.0))
    best = [OUTPUTS[int(i)] for i in q.argmax(-1)]
    assert cold.tolist() == [float(b == t) for b, t in zip(best, [5, 8, 13], strict=True)]


def test_output_tokens_are_the_likeliest_and_the_template_s() -> None:
    mass = np.zeros(96)
    mass[[40, 41, 42, 43]] = [4, 3, 2, 1]
    assert choose_output_tokens(mass, 5) == [1, 2, 40, 41, 42]


def test_held_out_prompts_are_fifty_and_ten_and_none_is_trained_on() -> None:
    held_out = read_held_out()
    assert sum(prompt.measured for prompt in held_out) == 50
    assert sum(not prompt.measured for prompt in held_out) == 10
    assert len({prompt.category for prompt in held_out}) == 10
    assert all(len(prompt.turns) % 2 == 1 for prompt in held_out)
    templates = prompts.read_lines("templates.txt")
    starts = [template.split("{")[0] for template in templates if len(template.split("{")[0]) > 20]
    for prompt in held_out:
        assert not any(prompt.turns[0].startswith(start) for start in starts), prompt.turns[0]
