"""What is chosen for a device unless something else is asked for."""

from types import SimpleNamespace

import pytest
import torch

from specpair.engine_config import EngineConfig
from specpair.models import device_defaults
from specpair.models.device_defaults import choose_dtype, choose_token_budget

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LLAMA = SimpleNamespace(dtype=torch.bfloat16, architectures=["LlamaForCausalLM"])


@pytest.mark.parametrize(
    ("device", "architecture", "stored", "has_fast_bfloat16", "expected"),
    [
        (CPU, "LlamaForCausalLM", torch.bfloat16, True, torch.bfloat16),
        (CPU, "LlamaForCausalLM", torch.bfloat16, False, torch.float32),
        (CPU, "LlamaForCausalLM", torch.float16, True, torch.float32),
        (CPU, "LlamaForCausalLM", torch.float32, True, torch.float32),
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
    equip(monkeypatch, has_fast_bfloat16=has_fast_bfloat16)
    settings = SimpleNamespace(dtype=stored, architectures=[architecture])
    assert choose_dtype(EngineConfig(model="x"), settings, device) == expected
    assert choose_dtype(EngineConfig(model="x", dtype="bfloat16"), settings, device) == torch.bfloat16


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(model="x", runner="fused"),
        EngineConfig(model="x", runner="plain"),
        EngineConfig(model="x", cache="paged"),
        EngineConfig(model="x", deterministic=True),
        EngineConfig(model="x", quantization="int8"),
    ],
)
def test_type_where_the_native_runner_is_not_to_run(config: EngineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(monkeypatch)
    assert choose_dtype(config, LLAMA, CPU) == torch.float32


def test_type_where_the_native_runner_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    equip(monkeypatch, has_library=False)
    assert choose_dtype(EngineConfig(model="x"), LLAMA, CPU) == torch.float32


def test_type_where_another_runner_is_faster_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    equip(monkeypatch, has_tiles=True)
    assert choose_dtype(EngineConfig(model="x"), LLAMA, CPU) == torch.float32
    assert choose_dtype(EngineConfig(model="x", runner="native"), LLAMA, CPU) == torch.bfloat16


def equip(
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_fast_bfloat16: bool = True,
    has_tiles: bool = False,
    has_library: bool = True,
) -> None:
    """Pretends that the machine has these."""
    monkeypatch.setattr(device_defaults, "computes_bfloat16", lambda device: has_fast_bfloat16)
    monkeypatch.setattr(device_defaults, "has_bfloat16_tiles", lambda: has_tiles)
    monkeypatch.setattr(device_defaults, "native_library", lambda: object() if has_library else None)


@pytest.mark.parametrize(("device", "expected"), [(CPU, 128), (GPU, 512)])
def test_token_budget(device: torch.device, expected: int) -> None:
    assert choose_token_budget(None, device) == expected
    assert choose_token_budget(7, device) == 7
