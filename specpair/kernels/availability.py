"""Whether this machine can compile and run the kernels. The other modules of this package import triton; this one does
only where there is a GPU."""

from importlib import import_module, util

import torch


def refusal(device: torch.device, dtype: torch.dtype, block_size: int) -> str:
    """Why the kernels cannot be used; empty if a trial succeeds. It compiles them, which takes some seconds, once."""
    if device.type != "cuda":
        return "there is no GPU"
    if util.find_spec("triton") is None:
        return "triton is not installed"
    try:
        import_module("specpair.kernels.trial").run(device, dtype, block_size)
    except Exception as error:  # compilers, drivers and launchers raise what they like; another way does the same work
        return (str(error) or type(error).__name__).strip().partition("\n")[0]
    return ""
