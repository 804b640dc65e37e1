"""Every number of a GGUF file that changes logits is served, also those that transformers' reader leaves out; or the
file is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specpair.errors import ModelRefusedError
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.self_check import run_chunks
from tests.services import engine_config
from tests.tiny_gguf import TOKENS, make_llama, write_gguf
from tests.tiny_models import load_plain

IDS = torch.randint(len(TOKENS), (40,), generator=torch.Generator().manual_seed(1))
"""Longer than a window."""
FOR_PHI3 = {"tokenizer.ggml.padding_token_id": 0}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "another base of rotations": ("starcoder2", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}, {}),
    "a window": ("phi3", {"sliding_window": 8}, {"phi3.attention.sliding_window": 8, **FOR_PHI3}),
    "a window that holds everything": ("phi3", {}, {"phi3.attention.sliding_window": 128, **FOR_PHI3}),
    "half a rotation": (
        "phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
        FOR_PHI3,
    ),
    "queries scaled by head": ("gemma2", {}, {"gemma2.attention.sliding_window": 8}),
    "other caps": (
        "gemma2",
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        {
            "gemma2.attention.sliding_window": 8,
            "gemma2.attn_logit_softcapping": 2.0,
            "gemma2.final_logit_softcapping": 3.0,
        },
    ),
}
"""The model, what is special about it, and how a file says that."""


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_logits_are_those_of_the_model_that_was_converted(case: str, tmp_path: Path) -> None:
    kind, changes, metadata = CASES[case]
    source = make_llama(tmp_path / "source", kind, **changes)
    _, served = load_runner(engine_config(write_gguf(tmp_path / "model.gguf", source, metadata=metadata)))
    logits = run_chunks(served, [served.cache.open([])], [IDS.tolist()])[0]
    assert torch.allclose(logits, load_plain(source)(IDS[None]).logits[0], atol=2e-4)


@pytest.mark.few_cases()
@pytest.mark.parametrize(("layers", "scale"), [(46, 16), (42, 32)])
def test_queries_of_the_largest_gemma_are_scaled_by_width(layers: int, scale: int, tmp_path: Path) -> None:
    """llama.cpp knows it by its number of layers; no file says it."""
    shape = {"num_hidden_layers": layers, "hidden_size": 64, "head_dim": 32}
    source = make_llama(tmp_path / "source", "gemma2", **shape)
    file = write_gguf(tmp_path / "model.gguf", source, metadata={"gemma2.attention.sliding_window": 8})
    assert load(engine_config(file)).model.config.query_pre_attn_scalar == scale


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a window of a Llama": ("llama", {"llama.attention.sliding_window": 8}),
    "a window of a Qwen": ("qwen3", {"qwen3.attention.sliding_window": 8}),
    "a cap of a Llama": ("llama", {"llama.final_logit_softcapping": 30.0}),
    "half a rotation": ("starcoder2", {"starcoder2.rope.dimension_count": 4}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_number_without_a_place_is_refused_by_name(case: str, tmp_path: Path) -> None:
    kind, metadata = REFUSED[case]
    file = write_gguf(tmp_path / "model.gguf", make_llama(tmp_path / "source", kind), metadata=metadata)
    ((key, value),) = metadata.items()
    with pytest.raises(ModelRefusedError, match=f"its {key} is {value}"):
        load(engine_config(file))
