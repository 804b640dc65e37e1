"""Copies within the host's memory that do not let go of the interpreter."""

from ctypes import PyDLL, c_size_t, c_void_p

from torch import Tensor

QUICK_BYTES = 256 * 1024
"""Most bytes that are copied so, which takes some tens of microseconds. An operation of torch lets go of the
interpreter, and gets it back after 0.1 to 0.3 ms where another thread is busy."""

_move = PyDLL(None).memmove
_move.argtypes = (c_void_p, c_void_p, c_size_t)
_move.restype = c_void_p


def copy_positions(new: Tensor, to: int, old: Tensor, start: int, count: int) -> None:
    """Copies `count` positions of `old` `[layers, heads, positions, size]`, from `start` on, to those of `new` from
    `to` on. `new` may be `old`, and may have another number of positions. Both are contiguous."""
    rows = old.size(0) * old.size(1)
    width = old.size(3) * old.element_size()
    if old.device.type != "cpu" or rows * count * width > QUICK_BYTES:
        moved = old[:, :, start : start + count]
        new[:, :, to : to + count] = moved.clone() if new is old else moved
        return
    target, target_step = new.data_ptr() + to * width, new.stride(1) * new.element_size()
    source, source_step = old.data_ptr() + start * width, old.stride(1) * old.element_size()
    for row in range(rows):
        _move(target + row * target_step, source + row * source_step, count * width)
