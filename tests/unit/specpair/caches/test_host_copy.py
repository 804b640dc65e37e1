"""Copies of positions are what torch's would be."""

import pytest
import torch

from specpair.caches.host_copy import copy_positions


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("size", [3, 4096], ids=["quick", "large"])
def test_a_beginning_is_copied_and_nothing_else(dtype: torch.dtype, size: int) -> None:
    old = torch.arange(2 * 3 * 9 * size).view(2, 3, 9, size).to(dtype)
    new = torch.full((2, 3, 7, size), 5, dtype=dtype)
    copy_positions(new, 0, old, 0, 6)
    assert torch.equal(new[:, :, :6], old[:, :, :6]) and (new[:, :, 6:] == 5).all()


@pytest.mark.parametrize("size", [3, 4096], ids=["quick", "large"])
def test_positions_are_moved_within_a_tensor_even_where_they_overlap(size: int) -> None:
    held = torch.arange(2 * 3 * 9 * size).view(2, 3, 9, size)
    before = held.clone()
    copy_positions(held, 1, held, 3, 5)
    assert torch.equal(held[:, :, 1:6], before[:, :, 3:8])
    assert torch.equal(held[:, :, :1], before[:, :, :1]) and torch.equal(held[:, :, 6:], before[:, :, 6:])
