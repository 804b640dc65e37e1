"""What `auto` means on a device: which one, in which type, with how many threads and tokens at once."""

from typing import Any

import torch

from specpair.errors import ModelRefusedError
from specpair.models.fusible import ARCHITECTURES, computes_bfloat16

SMALL_MODEL = 20_000_000
"""Parameters below which one thread was the faster way, on two cores."""
CPU_TOKEN_BUDGET = 128
"""A pass takes as long as it has tokens, and running outputs wait for the prompts of others: at 512 three times as
long, for prompts that are read a fifth sooner."""
GPU_TOKEN_BUDGET = 512
CPU_PASS_TIMEOUT = 120.0
"""Seconds. A pass of a large model on few cores can take ten; on a machine that swaps, several times as long."""
GPU_PASS_TIMEOUT = 30.0
"""Seconds, of passes that take one at most, kernels that are loaded at their first use included."""


def choose_device(wanted: str) -> torch.device:
    """The device of that name, `auto` being the first GPU, else the CPU. Raises ModelRefusedError."""
    if wanted == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelRefusedError(f"device {wanted} cannot be used: {reason}") from error
    return device


def choose_dtype(wanted: str, settings: Any, device: torch.device) -> torch.dtype:
    """bf16 where the device computes it fast and the checkpoint is not wider; float32 else.

    On a CPU the fused runner in float32, which reads 16 bits a weight, is the faster and the more exact one.
    """
    if wanted != "auto":
        return getattr(torch, wanted)
    stored = getattr(settings, "dtype", None) or torch.float32
    is_half = stored in (torch.bfloat16, torch.float16)
    is_fused = device.type == "cpu" and not ARCHITECTURES.isdisjoint(settings.architectures or ())
    return torch.bfloat16 if is_half and computes_bfloat16(device) and not is_fused else torch.float32


def choose_threads(wanted: int | None, parameter_count: int, device: torch.device) -> int:
    """What is asked for, else one for a small model on a CPU and all cores for others.

    A product of a small model ends before a second thread has begun, and idle OpenMP threads wait by spinning: on a
    host that draft, target and coordinator share, they take the processor from whoever has the next move.
    """
    if wanted is not None:
        return wanted
    is_small = device.type == "cpu" and parameter_count < SMALL_MODEL
    return 1 if is_small else torch.get_num_threads()


def choose_token_budget(wanted: int | None, device: torch.device) -> int:
    """Tokens that a forward pass feeds, as `specpair.engine.scheduler` counts them."""
    if wanted is not None:
        return wanted
    return CPU_TOKEN_BUDGET if device.type == "cpu" else GPU_TOKEN_BUDGET


def choose_pass_timeout(wanted: float | None, device: torch.device) -> float:
    """Seconds after which a forward pass counts as hanging."""
    if wanted is not None:
        return wanted
    return CPU_PASS_TIMEOUT if device.type == "cpu" else GPU_PASS_TIMEOUT
