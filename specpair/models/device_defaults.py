"""Defaults by device: device, dtype, threads, token budget and pass timeout."""

from typing import Any

import torch

from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED
from specpair.models.fusible import ARCHITECTURES, computes_bfloat16
from specpair.native.library import native_library

SMALL_MODEL = 20_000_000
"""Below this number of parameters one thread was faster, measured on two cores."""
CPU_TOKEN_BUDGET = 128
"""The time of a pass grows with its tokens, and running outputs wait for prompts of others: with 512 three times as
long, while prompts are read only a fifth sooner."""
GPU_TOKEN_BUDGET = 512
CPU_PASS_TIMEOUT = 120.0
"""Seconds. A pass of a large model on few cores can take ten; on a swapping machine several times as long."""
GPU_PASS_TIMEOUT = 30.0
"""Seconds. A pass takes one second at most, including kernels that are loaded at first use."""


def choose_device(wanted: str) -> torch.device:
    """The device of that name; `auto` is the first GPU, else the CPU. Raises ModelRefusedError."""
    if wanted == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # kernels and captures are of the device that is current in this thread
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelRefusedError(f"device {wanted} cannot be used: {reason}") from error
    return device


def choose_dtype(config: EngineConfig, settings: Any, device: torch.device) -> torch.dtype:
    """The requested type. `auto` is bf16 if the device computes it fast and the checkpoint is not wider, else float32.

    The fused runner reads 16 bits per weight in float32 too, and its bf16 rows depend on their company. So what it
    could run on a CPU is bf16 only in the native runner, where that is faster and each row's bits are its own.
    """
    if config.dtype != "auto":
        return getattr(torch, config.dtype)
    stored = getattr(settings, "dtype", None) or torch.float32
    if stored not in (torch.bfloat16, torch.float16) or not computes_bfloat16(device):
        return torch.float32
    is_quantized = getattr(settings, "quantization_config", None) is not None
    if device.type != "cpu" or is_quantized or ARCHITECTURES.isdisjoint(settings.architectures or ()):
        return torch.bfloat16
    return torch.bfloat16 if stored == torch.bfloat16 and runs_bfloat16_natively(config) else torch.float32


def runs_bfloat16_natively(config: EngineConfig) -> bool:
    """Whether a model of the fused runner would run in the native one, were it in bf16."""
    if config.deterministic or config.quantization != NOT_QUANTISED:
        return False
    is_preferred = config.runner == "native" or (config.runner == "auto" and not has_bfloat16_tiles())
    return is_preferred and config.cache != "paged" and native_library() is not None


def has_bfloat16_tiles() -> bool:
    """Whether the processor has AMX, which the fused runner's products use and the native one's do not."""
    return torch.cpu._is_amx_tile_supported()


def choose_threads(wanted: int | None, parameter_count: int, device: torch.device) -> int:
    """The requested number; by default one thread for a small model on a CPU, all cores for others.

    A product of a small model ends before a second thread starts. Idle OpenMP threads spin: on a host shared by draft,
    target and coordinator they take processor time from the process whose turn is next.
    """
    if wanted is not None:
        return wanted
    is_small = device.type == "cpu" and parameter_count < SMALL_MODEL
    return 1 if is_small else torch.get_num_threads()


def choose_token_budget(wanted: int | None, device: torch.device) -> int:
    """Token budget of a forward pass, as `specpair.engine.scheduler` counts it."""
    if wanted is not None:
        return wanted
    return CPU_TOKEN_BUDGET if device.type == "cpu" else GPU_TOKEN_BUDGET


def choose_pass_timeout(wanted: float | None, device: torch.device) -> float:
    """Seconds after which a forward pass counts as hanging."""
    if wanted is not None:
        return wanted
    return CPU_PASS_TIMEOUT if device.type == "cpu" else GPU_PASS_TIMEOUT
