"""Memory in large pages holds what is copied there."""

import mmap
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specpair.models.large_pages import CHUNK, LINE, PAGE, LargePages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as the compiled functions")
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
    sizes = (PAGE, CHUNK + 1, CHUNK // 2 + 1)
    copies = [pages.copy(torch.full((size,), 1 + i, dtype=torch.uint8)) for i, size in enumerate(sizes)]
    assert all(bool((copied == 1 + i).all()) for i, copied in enumerate(copies)), "none lies over another"
    assert copies[1].data_ptr() % PAGE == 0, "a chunk begins with a page"


def test_chunks_are_given_back_with_their_tensors() -> None:
    copied = LargePages().copy(torch.ones(PAGE))
    address = copied.data_ptr()
    assert any(first <= address < last for first, last, _ in areas())
    del copied
    assert not any(first <= address < last for first, last, _ in areas())


@pytest.mark.skipif(not OFFERED.exists(), reason="this kernel has no large pages")
def test_the_system_is_asked_for_large_pages() -> None:
    copied = LargePages().copy(torch.ones(PAGE))
    assert flags_of(copied) >= {"hg"}
    fresh = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # torch may get memory that was asked for
    assert "hg" not in flags_of(torch.frombuffer(fresh, dtype=torch.uint8)), "elsewhere it is not"


def flags_of(tensor: Tensor) -> set[str]:
    """What the kernel says of the area of memory that the tensor is in."""
    return next(flags for first, last, flags in areas() if first <= tensor.data_ptr() < last)


def areas() -> list[tuple[int, int, set[str]]]:
    """First and last address of each area of this process's memory, and its flags (proc_pid_smaps(5): `VmFlags`)."""
    found: list[tuple[int, int, set[str]]] = []
    first = last = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            first, last = (int(address, 16) for address in name.split("-"))
        elif name == "VmFlags:":
            found.append((first, last, set(rest.split())))
    return found
