"""A device that stands for a GPU where nothing may be asked of it or sent to it: meta tensors, whose numbers nobody
knows. What runs on them runs without a synchronisation."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("meta")


class SilentDevice(TorchDispatchMode):
    """Inside it, an operation between the device and arrays of the host is an error, too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for part in tree_leaves((args, kwargs)):
            if isinstance(part, Tensor) and part.dim() and part.device != DEVICE:
                raise RuntimeError(f"{func} takes an array from the host")
        return func(*args, **(kwargs or {}))
