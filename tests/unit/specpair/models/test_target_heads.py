"""Medusa heads, look-ahead embeddings and multi-token prediction draft as their references, however they were fed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoePreTrainedModel

from specpair.caches.holding import Segment
from specpair.errors import ModelRefusedError
from specpair.models.batch import Batch
from specpair.models.drafting_runner import DraftingRunner
from specpair.models.head_files import read_tensors
from specpair.models.load_runner import load_runner
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import load_plain, make_model
from tests.tiny_target_heads import make_lookahead, make_medusa, make_mtp_target

IDS = [5, 17, 3, 44, 8, 21, 60, 2, 33, 12, 31, 7, 50, 9, 1, 2, 3, 4, 5, 6]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"runner": "plain"},
    "paged": {"runner": "plain", "cache": "paged"},
    "fused": {"runner": "fused"},
    "native": {"runner": "native"},
    "deterministic": {"deterministic": True},
    "int8": {"quantization": "int8"},
}


def load(target: Path, head: Path | str, way: str) -> Any:
    if way == "native" and native_library() is None:
        pytest.skip("needs a compiler")
    _, runner = load_runner(engine_config(target, head=str(head), **WAYS[way]))
    assert isinstance(runner, DraftingRunner)
    return runner


def feed(runner: Any, holding: Any, token_ids: list[int]) -> None:
    start = holding.length
    runner.cache.append(holding, len(token_ids))
    runner.forward(Batch.of_chains([Segment(holding, start, len(token_ids))], token_ids, [1]))


def drafted(runner: Any, holdings: list[Any], texts: list[list[int]], places: Any = None) -> list[Tensor]:
    """The logits `[steps, vocabulary]` of a greedy draft of each."""
    steps = runner.most_tokens
    run = runner.begin(holdings, places or [range(len(text) - 1) for text in texts], steps)
    newest, rows = [text[-1] for text in texts], []
    for _ in range(steps):
        rows.append(run.logits(newest, list(range(len(texts)))))
        newest = rows[-1].argmax(-1).tolist()
    return list(torch.stack(rows, 1))


@torch.no_grad()
def medusa(target: Path, head: Path, text: list[int]) -> Tensor:
    """As Medusa's own model computes it, over the whole text."""
    model, found = load_plain(target), []
    tensors: Any = load_file(head / "model.safetensors")
    state = model.model(torch.tensor([text[:-1]])).last_hidden_state[0, -1]
    blocks = 1 + max(int(name.split(".")[1]) for name in tensors if "linear" in name)
    for index in range(1 + max(int(name.split(".")[0]) for name in tensors)):
        hidden = state
        for block in range(blocks):
            name = f"{index}.{block}.linear"
            hidden = hidden + F.silu(F.linear(hidden, tensors[f"{name}.weight"], tensors[f"{name}.bias"]))
        found.append(F.linear(hidden, tensors.get(f"{index}.{blocks}.weight", model.lm_head.weight)))
    return torch.stack(found)


@torch.no_grad()
def lookahead(target: Path, head: Path, text: list[int]) -> Tensor:
    """The target over the text with the embeddings after it."""
    model, rows = load_plain(target), load_file(head / "model.safetensors")["lookahead.weight"]
    inputs = torch.cat([model.get_input_embeddings()(torch.tensor(text)), rows])
    return model(inputs_embeds=inputs[None]).logits[0, len(text) - 1 :]


@torch.no_grad()
def mtp(target: Path, head: Path, text: list[int]) -> Tensor:
    """As transformers drafts."""
    model: Any = load_plain(target)
    layers: Any = MtpModel.from_pretrained(model).eval()
    states = model(torch.tensor([text[:-1]]), output_hidden_states=-1).hidden_states[-1]
    positions = torch.arange(1, len(text))[None]
    cache = MtpCache(config=model.config.get_mtp_config())
    return layers(torch.tensor([text[1:]]), states, None, positions, cache)[1][0]


def check_draft(runner: Any, reference: Callable[[list[int]], Tensor], most: float = 2e-3) -> None:
    """Two sequences drafted together: one fed at once, one in pieces with tokens that were rolled back."""
    texts = [IDS, IDS[3:15]]
    holdings = [runner.cache.open([]) for _ in texts]
    feed(runner, holdings[0], texts[0][:-1])
    for piece in (texts[1][:4], texts[1][4:5], [9, 9, 9]):
        feed(runner, holdings[1], piece)
    runner.cache.truncate_to(holdings[1], 5)
    feed(runner, holdings[1], texts[1][5:-1])
    for _ in range(2):  # a draft leaves nothing behind
        for text, logits in zip(texts, drafted(runner, holdings, texts), strict=True):
            assert (logits - reference(text)).abs().max() < most
        assert [holding.length for holding in holdings] == [len(text) - 1 for text in texts]
    fork = runner.cache.fork(holdings[0], 10)
    feed(runner, fork, [11, 13])
    (logits,) = drafted(runner, [fork], [[*IDS[:10], 11, 13, 4]])
    assert (logits - reference([*IDS[:10], 11, 13, 4])).abs().max() < most


@pytest.mark.parametrize("way", WAYS)
def test_medusa_heads_draft_as_their_reference(way: str, tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_medusa(tmp_path / "head")
    most = 1.0 if way == "int8" else 2e-3
    check_draft(load(target, head, way), lambda text: medusa(target, head, text), most)


@pytest.mark.parametrize("changes", [{"outputs": 64}, {"blocks": 1, "heads": 2}])
def test_every_shape_of_medusa_heads_drafts_as_its_reference(changes: dict[str, Any], tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_medusa(tmp_path / "head", **changes)
    check_draft(load(target, head, "fused"), lambda text: medusa(target, head, text))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_tied", [True, False])
def test_look_ahead_embeddings_draft_as_their_reference(way: str, is_tied: bool, tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", tie_word_embeddings=is_tied)
    head = make_lookahead(tmp_path / "head")
    most = 1.0 if way == "int8" else 2e-3
    check_draft(load(target, head, way), lambda text: lookahead(target, head, text), most)


def test_a_sequence_that_is_nearly_full_looks_less_far_ahead(tmp_path: Path) -> None:
    """Beside one with room: no position beyond the last is fed."""
    target, head = make_model(tmp_path / "target"), make_lookahead(tmp_path / "head")
    runner = load(target, head, "fused")
    full = [3, 4] * 63 + [5]
    holdings = [runner.cache.open([]) for _ in range(2)]
    feed(runner, holdings[0], full[:-1])
    feed(runner, holdings[1], IDS[:-1])
    found = runner.look_ahead(holdings, [len(full) - 1, len(IDS) - 1], [full[-1], IDS[-1]], 4)
    assert [len(rows) for rows in found] == [2, 4]
    assert (found[0] - lookahead(target, head, full)[:2]).abs().max() < 2e-3
    assert [holding.length for holding in holdings] == [len(full) - 1, len(IDS) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
def test_multi_token_prediction_drafts_as_transformers_does(
    depth: int, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Glm4MoePreTrainedModel, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.46.*", r"model\.layers\.47.*"]
    )
    target = make_mtp_target(tmp_path / "target", depth=depth)
    _, runner = load_runner(engine_config(target, head="mtp", cache=cache))
    check_draft(runner, lambda text: mtp(target, target, text))


@pytest.mark.parametrize("kind", ["medusa", "mtp"])
def test_a_tree_leaves_what_its_path_would_have_left(kind: str, tmp_path: Path) -> None:
    """Drafted before the path is moved together, and after it."""
    if kind == "mtp":
        target, head, reference = make_mtp_target(tmp_path / "target"), "mtp", mtp
    else:
        target, head, reference = make_model(tmp_path / "target"), make_medusa(tmp_path / "head"), medusa
    _, runner = load_runner(engine_config(target, head=str(head)))
    holding = runner.cache.open([])
    feed(runner, holding, IDS[:8])
    runner.cache.append(holding, 5)
    tree = Batch.of_trees([Segment(holding, 8, 5)], [IDS[8], 1, IDS[9], 4, IDS[10]], [5], [None, 0, 0, 1, 2])
    runner.forward(tree)
    expected = reference(target, Path(head), IDS[:12])
    (before,) = drafted(runner, [holding], [IDS[:12]], [[*range(8), 8, 10, 12]])
    runner.cache.keep_path(holding, 8, [0, 2, 4])
    (after,) = drafted(runner, [holding], [IDS[:12]])
    assert (before - expected).abs().max() < 2e-3
    assert torch.equal(before, after)


def test_a_head_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target")

    def refusal(head: Path | str) -> str:
        with pytest.raises(ModelRefusedError) as refused:
            load_runner(engine_config(target, head=str(head)))
        return refused.value.message

    assert "0.0.linear.weight is (16, 16), and must be (32, 32)" in refusal(make_medusa(tmp_path / "width", width=16))
    assert "0.2.weight is (70, 32), and must be (64, 32)" in refusal(make_medusa(tmp_path / "outputs", outputs=70))
    assert "medusa_num_heads is 17; it must be from 1 to 16" in refusal(make_medusa(tmp_path / "many", heads=17))
    assert "lookahead.weight is (3, 16), and must be (3, 32)" in refusal(make_lookahead(tmp_path / "short", width=16))
    assert "no num_mtp_layers" in refusal("mtp")
    assert "cannot be read" in refusal(tmp_path / "nothing")
    unknown = make_lookahead(tmp_path / "unknown")
    (unknown / "config.json").write_text('{"model_type": "llama"}')
    assert "no head of a known kind: its model_type is 'llama'" in refusal(unknown)
    reduced = make_model(tmp_path / "reduced")
    fields = json.loads((reduced / "config.json").read_text())
    (reduced / "config.json").write_text(json.dumps({**fields, "output_token_ids": [0, 1, 3]}))
    with pytest.raises(ModelRefusedError, match="no whole output matrix"):
        load_runner(engine_config(reduced, head=str(make_medusa(tmp_path / "borrowing"))))
    pickled = make_medusa(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "medusa_lm_head.pt")
    assert "medusa_lm_head.pt is pickled" in refusal(pickled)


def test_a_tensor_that_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    target, head = make_model(tmp_path / "target"), make_medusa(tmp_path / "head")
    whole = load_file(head / "model.safetensors")
    for tensors, named in (
        ({name: value for name, value in whole.items() if name != "2.1.linear.bias"}, "no 2.1.linear.bias"),
        (whole | {"9.0.linear.bias": torch.zeros(1)}, "9.0.linear.bias, which is not supported"),
    ):
        save_file(tensors, head / "model.safetensors")
        with pytest.raises(ModelRefusedError, match=named):
            load_runner(engine_config(target, head=str(head)))


def test_a_checkpoint_without_its_prediction_layers_is_refused(tmp_path: Path) -> None:
    target = make_mtp_target(tmp_path)
    whole = load_file(target / "model.safetensors")
    kept = {name: tensor for name, tensor in whole.items() if "layers.46.eh_proj" not in name}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelRefusedError, match="cannot be loaded"):
        load_runner(engine_config(target, head="mtp"))


def test_weights_of_a_head_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    """Its proposals would be nothing but errors, round after round."""
    folder = make_medusa(tmp_path / "head")
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[3] = float("nan")
    save_file(tensors, weights)
    with pytest.raises(ModelRefusedError, match=f"{re.escape(name)} holds NaN or infinite weights"):
        read_tensors(folder)


def test_bits_of_a_head_that_has_none_to_save_are_refused(tmp_path: Path) -> None:
    """They were asked for in vain, and nothing said so."""
    target = make_model(tmp_path / "target")
    with pytest.raises(ModelRefusedError, match="--head-quantization int8: the target has no head"):
        load_runner(engine_config(target, head_quantization="int8"))
    head = str(make_medusa(tmp_path / "head"))
    for named in (head, "mtp"):
        with pytest.raises(ModelRefusedError, match=f"--head-quantization int4 is for EAGLE-3 heads, and {named} is"):
            load_runner(engine_config(target, head=named, head_quantization="int4"))
    load_runner(engine_config(target, head_quantization="none"))
    load_runner(engine_config(target, head=head, head_quantization="auto"))
