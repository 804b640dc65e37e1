"""The type that a model is computed in unless something else is asked for."""

from types import SimpleNamespace

import pytest
import torch

from specpair.engine import loading
from specpair.engine.loading import choose_dtype

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("device", "architecture", "stored", "has_fast_bfloat16", "expected"),
    [
        (CPU, "LlamaForCausalLM", torch.bfloat16, True, torch.float32),
        (CPU, "GemmaForCausalLM", torch.bfloat16, True, torch.bfloat16),
        (CPU, "GemmaForCausalLM", torch.bfloat16, False, torch.float32),
        (CPU, "GemmaForCausalLM", torch.float32, True, torch.float32),
        (GPU, "LlamaForCausalLM", torch.bfloat16, True, torch.bfloat16),
        (GPU, "LlamaForCausalLM", torch.float32, True, torch.float32),
    ],
)
def test_auto(
    device: torch.device,
    architecture: str,
    stored: torch.dtype,
    has_fast_bfloat16: bool,
    expected: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "computes_bfloat16", lambda device: has_fast_bfloat16)
    settings = SimpleNamespace(dtype=stored, architectures=[architecture])
    assert choose_dtype("auto", settings, device) == expected
    assert choose_dtype("bfloat16", settings, device) == torch.bfloat16
