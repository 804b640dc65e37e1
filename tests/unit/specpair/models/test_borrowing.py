"""A model may borrow the embeddings and the tokenizer of another."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specpair.errors import ModelRefusedError
from specpair.models import find_checkpoint
from specpair.models.folder_checkpoint import FolderCheckpoint
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.self_check import chunked_logits
from tests.services import engine_config
from tests.tiny_gguf import TOKENS, make_llama, write_gguf
from tests.tiny_models import load_plain

EMBEDDING = "model.embed_tokens.weight"
IDS = torch.randint(len(TOKENS), (2, 24), generator=torch.Generator().manual_seed(1))


def make_borrower(folder: Path, lender: object, **changes: Any) -> Path:
    """A Llama without embeddings of its own."""
    make_llama(folder, seed=7)
    weights = load_file(folder / "model.safetensors")
    del weights[EMBEDDING]
    save_file(weights, folder / "model.safetensors")
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "embeddings_of": str(lender), **changes}))
    return folder


def expected_logits(tmp_path: Path) -> torch.Tensor:
    """Those of the borrower with the embeddings of the model in `target`, as transformers runs it."""
    make_llama(tmp_path / "whole", seed=7)
    model = load_plain(tmp_path / "whole")
    lent = load_file(tmp_path / "target" / "model.safetensors")[EMBEDDING]
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(lent)
        return model(IDS).logits


@pytest.mark.parametrize("runner", ["plain", "fused"])
@pytest.mark.parametrize("lender", ["folder", "relative folder", "file", "name"])
def test_the_lenders_embeddings_are_input_and_output(
    lender: str, runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_llama(tmp_path / "target")
    file = write_gguf(tmp_path / "target.gguf", target)
    monkeypatch.setattr(find_checkpoint, "resolve_model", lambda name, role: str(file) if name == "smollm2" else name)
    named = {"folder": target, "relative folder": "../target", "file": file, "name": "smollm2"}[lender]
    _, served = load_runner(engine_config(make_borrower(tmp_path / "draft", named), runner=runner))
    assert torch.allclose(chunked_logits(served, IDS), expected_logits(tmp_path), atol=2e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_borrowed_and_own_weights_have_the_requested_type(dtype: str, tmp_path: Path) -> None:
    """The frequencies of positions stay float32, as in every model."""
    target = make_llama(tmp_path / "target")
    model: Any = load(engine_config(make_borrower(tmp_path / "draft", target), dtype=dtype)).model
    assert {weight.dtype for weight in model.parameters()} == {getattr(torch, dtype)}
    assert torch.equal(model.model.rotary_emb.inv_freq, load_plain(target).model.rotary_emb.inv_freq)


def test_the_lenders_tokenizer_is_the_borrowers(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "target.gguf", make_llama(tmp_path / "target"))
    own, lent = (load(engine_config(model)).facts for model in (make_borrower(tmp_path / "draft", file), file))
    assert own.tokenizer is not None and own.tokenizer == lent.tokenizer
    assert own.display_name == "draft"


def refusal(folder: Path) -> str:
    with pytest.raises(ModelRefusedError) as refused:
        load(engine_config(folder))
    assert "\n" not in refused.value.message
    return refused.value.message


def test_who_lends_nothing_is_named(tmp_path: Path) -> None:
    for lender in ("absent", "some/model"):
        assert f"borrows the embeddings of {lender}" in refusal(make_borrower(tmp_path / "draft", lender))
    (tmp_path / "empty").mkdir()
    make_borrower(tmp_path / "other", tmp_path / "target")
    for lender in ("../empty", ".", "../other"):
        assert f"has no {EMBEDDING} to lend" in refusal(make_borrower(tmp_path / "draft", lender))
    broken = tmp_path / "empty" / "model.safetensors"
    broken.write_bytes(b"broken")
    assert "empty cannot be read" in refusal(make_borrower(tmp_path / "draft", "../empty"))


def test_a_model_of_the_hub_cannot_borrow(tmp_path: Path) -> None:
    """It could name any file of this machine; and its embeddings would be random."""
    folder = FolderCheckpoint(str(make_borrower(tmp_path / "draft", "../target")))
    with pytest.raises(ModelRefusedError, match="only a model in a local folder can"):
        folder.model(folder.settings(), torch.float32, torch.device("cpu"), "eager")


def test_embeddings_of_another_size_are_refused(tmp_path: Path) -> None:
    make_llama(tmp_path / "target", hidden_size=64)
    assert "is lent (262, 64)" in refusal(make_borrower(tmp_path / "draft", "../target"))


def test_a_missing_or_superfluous_weight_is_named(tmp_path: Path) -> None:
    make_llama(tmp_path / "target")
    weights = load_file(make_borrower(tmp_path / "draft", "../target") / "model.safetensors")
    file = tmp_path / "draft" / "model.safetensors"
    save_file({**weights, "model.unheard_of.weight": torch.zeros(2)}, file)
    assert "it has a superfluous model.unheard_of.weight" in refusal(file.parent)
    save_file({name: weight for name, weight in weights.items() if name != "model.norm.weight"}, file)
    assert "it has no model.norm.weight" in refusal(file.parent)
    file.write_bytes(b"broken")
    assert "cannot be loaded" in refusal(file.parent)
