"""Arithmetic in float32 without numpy or torch: the coordinator has neither.

A sum or quotient of two float32 numbers that is computed in double precision and then rounded is the one that float32
arithmetic gives.
"""

import struct

_FLOAT = struct.Struct("f")


def single(value: float) -> float:
    """The nearest float32 number; infinite beyond its range."""
    try:
        return _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
