"""A plugin for pytest: packed weights lie in memory of their own each, so that what is read beyond them is seen."""

from unittest.mock import patch

import torch
from torch import Tensor

from specpair.models.large_pages import LargePages


def copied(pages: LargePages, tensor: Tensor) -> Tensor:
    """The same numbers in memory of their own."""
    memory = torch.empty(tensor.nbytes, dtype=torch.uint8)
    return memory.view(tensor.dtype).view(tensor.shape).copy_(tensor)


patch.object(LargePages, "copy", copied).start()
