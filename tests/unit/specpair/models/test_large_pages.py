"""Memory in large pages holds what is copied there."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specpair.models.large_pages import CHUNK, LINE, PAGE, LargePages

OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_tensors_are_copied_each_from_a_line_on() -> None:
    pages = LargePages()
    tensors = [
        torch.arange(7, dtype=torch.int8),
        torch.randn(3, 5),
        torch.randn(4, 6).T,
        torch.randn(5).bfloat16(),
        torch.empty(0),
        torch.randn(2, 3, 4)[:, 1:],
    ]
    copies = [pages.copy(tensor) for tensor in tensors]
    for tensor, copied in zip(tensors, copies, strict=True):
        assert torch.equal(copied, tensor) and copied.dtype == tensor.dtype
        assert copied.is_contiguous() and copied.data_ptr() % LINE == 0
        tensor.zero_()
        assert copied.numel() == 0 or copied.any(), "it has memory of its own"


def test_what_does_not_fit_into_a_chunk_has_one_of_its_own() -> None:
    pages = LargePages()
    small, large, more = (
        pages.copy(torch.full((size,), 3, dtype=torch.uint8)) for size in (PAGE, CHUNK + 1, CHUNK // 2 + 1)
    )
    assert all(bool((one == 3).all()) for one in (small, large, more))
    assert large.data_ptr() % PAGE == 0, "a chunk begins with a page"


def test_chunks_are_given_back_with_their_tensors() -> None:
    copied = LargePages().copy(torch.ones(PAGE))
    assert pages_of(copied) > 0
    address = copied.data_ptr()
    del copied
    assert not any(first <= address < last for first, last, _ in areas())


@pytest.mark.skipif(
    not OFFERED.exists() or "[never]" in OFFERED.read_text(), reason="this system offers no large pages"
)
def test_the_system_gives_large_pages() -> None:
    copied = LargePages().copy(torch.ones(4 * PAGE, dtype=torch.uint8))
    assert large_of(copied) >= 2 * PAGE


def pages_of(tensor: Tensor) -> int:
    """Bytes of the area of memory that the tensor is in."""
    return next(last - first for first, last, _ in areas() if first <= tensor.data_ptr() < last)


def large_of(tensor: Tensor) -> int:
    """How many bytes of that area are in large pages."""
    return next(large for first, last, large in areas() if first <= tensor.data_ptr() < last)


def areas() -> list[tuple[int, int, int]]:
    """First and last address of each area of this process's memory, and its bytes in large pages."""
    found: list[tuple[int, int, int]] = []
    first = last = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            first, last = (int(address, 16) for address in name.split("-"))
        elif name == "AnonHugePages:":
            found.append((first, last, int(rest.split()[0]) * 1024))
    return found
