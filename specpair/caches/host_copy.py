"""Copies within the host's memory that do not let go of the interpreter."""

from ctypes import PyDLL, c_size_t, c_void_p

from torch import Tensor

QUICK_BYTES = 256 * 1024
"""Most bytes that are copied so, which takes some tens of microseconds. An operation of torch lets go of the
interpreter, and gets it back after 0.1 to 0.3 ms where another thread is busy."""

_move = PyDLL(None).memmove
_move.argtypes = (c_void_p, c_void_p, c_size_t)
_move.restype = c_void_p


def copy_beginning(new: Tensor, old: Tensor, length: int) -> None:
    """Copies the first `length` positions of `old` `[layers, heads, positions, size]` to `new`, which may have another
    number of positions. Both are contiguous."""
    rows = old.size(0) * old.size(1)
    size = length * old.size(3) * old.element_size()
    if old.device.type != "cpu" or rows * size > QUICK_BYTES:
        new[:, :, :length] = old[:, :, :length]
        return
    to, to_step = new.data_ptr(), new.stride(1) * new.element_size()
    source, source_step = old.data_ptr(), old.stride(1) * old.element_size()
    for row in range(rows):
        _move(to + row * to_step, source + row * source_step, size)
