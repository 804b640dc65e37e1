"""A model with a reduced vocabulary gives some tokens their usual logits, and all others none, whoever runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from specpair.errors import ModelRefusedError
from specpair.models import output_tokens
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.self_check import chunked_logits
from tests.services import engine_config
from tests.tiny_models import load_plain, make_model

LISTED = [0, 3, 5, 21, 22, 40, 63]
IDS = torch.randint(64, (2, 24), generator=torch.Generator().manual_seed(1))
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"runner": "plain"},
    "fused": {"runner": "fused"},
    "fused bfloat16": {"runner": "fused", "dtype": "bfloat16"},
    "deterministic": {"deterministic": True},
    "paged": {"cache": "paged"},
    "captured": {"runner": "captured", "cache": "paged"},
}


def reduced(folder: Path, listed: Any = LISTED, **changes: Any) -> Path:
    """A tiny model whose configuration lists its output tokens."""
    config = make_model(folder, **changes) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "output_token_ids": listed}))
    return folder


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_only_listed_tokens_have_logits_and_these_are_unchanged(way: str, is_tied: bool, tmp_path: Path) -> None:
    if way == "fused bfloat16" and not torch.cpu._is_avx512_bf16_supported():
        pytest.skip("the fused runner computes bfloat16 only on processors with units for it")
    folder = reduced(tmp_path, tie_word_embeddings=is_tied)
    config = engine_config(folder, **WAYS[way])
    _, runner = load_runner(config)
    logits = chunked_logits(runner, IDS)
    with torch.no_grad():
        whole = load_plain(folder)(IDS).logits
    assert logits.shape == whole.shape
    others = [token for token in range(64) if token not in LISTED]
    assert bool(logits[..., others].isneginf().all())
    tolerance = 2e-4 if config.dtype == "float32" else 0.1 * float(whole.abs().max())
    assert torch.allclose(logits[..., LISTED], whole[..., LISTED], atol=tolerance)


def test_the_softmax_of_such_logits_sums_to_one_over_the_listed_tokens(tmp_path: Path) -> None:
    _, runner = load_runner(engine_config(reduced(tmp_path)))
    rows = chunked_logits(runner, IDS).softmax(-1)
    assert torch.allclose(rows[..., LISTED].sum(-1), torch.ones(2, 24))


@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
def test_other_families_are_reduced_too(kind: str, tmp_path: Path) -> None:
    _, runner = load_runner(engine_config(reduced(tmp_path, kind=kind)))
    logits = chunked_logits(runner, IDS)
    assert int(logits.isneginf().sum()) == logits.numel() - 2 * 24 * len(LISTED)


def test_parameters_that_no_pass_multiplies_do_not_count(tmp_path: Path) -> None:
    """They decide about the number of threads."""
    tied: dict[str, Any] = {"tie_word_embeddings": True}
    whole = load(engine_config(make_model(tmp_path / "whole", **tied))).facts.parameter_count
    facts = load(engine_config(reduced(tmp_path / "reduced", **tied))).facts
    assert facts.parameter_count == whole - (64 - len(LISTED)) * 32


@pytest.mark.parametrize("listed", [[], [3, 3], [5, 3], [-1, 3], [3, 64], ["3"], [True], {"a": 1}, "all", [2**70]])
def test_ids_that_do_not_ascend_within_the_vocabulary_are_refused(listed: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="output_token_ids are not ascending ids below 64"):
        load(engine_config(reduced(tmp_path, listed)))


def test_the_self_check_sees_a_token_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that gives another token a logit is not served."""
    folder = reduced(tmp_path)
    load_runner(engine_config(folder))
    spread = output_tokens.OutputTokens.forward

    def generous(self: output_tokens.OutputTokens, logits: torch.Tensor) -> torch.Tensor:
        """Rows of the runner have no batch dimension, those of transformers have one."""
        rows = spread(self, logits)
        return rows.index_fill(-1, torch.tensor([1]), 0.0) if logits.dim() == 2 else rows

    monkeypatch.setattr(output_tokens.OutputTokens, "forward", generous)
    with pytest.raises(ModelRefusedError, match="logits through the cache differ"):
        load_runner(engine_config(folder))
