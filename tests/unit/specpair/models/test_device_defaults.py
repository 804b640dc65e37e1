"""What is chosen for a device unless something else is asked for."""

from types import SimpleNamespace

import pytest
import torch

from specpair.models import device_defaults
from specpair.models.device_defaults import choose_dtype, choose_token_budget

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
def test_type(
    device: torch.device,
    architecture: str,
    stored: torch.dtype,
    has_fast_bfloat16: bool,
    expected: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_defaults, "computes_bfloat16", lambda device: has_fast_bfloat16)
    settings = SimpleNamespace(dtype=stored, architectures=[architecture])
    assert choose_dtype("auto", settings, device) == expected
    assert choose_dtype("bfloat16", settings, device) == torch.bfloat16


@pytest.mark.parametrize(("device", "expected"), [(CPU, 128), (GPU, 512)])
def test_token_budget(device: torch.device, expected: int) -> None:
    assert choose_token_budget(None, device) == expected
    assert choose_token_budget(7, device) == 7
