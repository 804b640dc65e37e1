"""What the functions take that do the arithmetic around a forward pass, for ctypes: numbers of 64 bits, and addresses
or bytes. `specpair.models.native_llama` calls the pass itself."""

import ctypes
from typing import Any

_INTEGER, _KEY, _NUMBER, _DATA = ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p

_SIGNATURES = {
    "specpair_draw_rows": (_DATA, _INTEGER, _INTEGER, _NUMBER, _INTEGER, _DATA, _DATA, _DATA),
    "specpair_draw": (_DATA, _INTEGER, _NUMBER),
    "specpair_soften": (_DATA, _INTEGER, _INTEGER, _DATA, _INTEGER, _DATA),
    "specpair_race": (
        *(_DATA, _INTEGER, _INTEGER, _DATA, _DATA, _INTEGER, _DATA),
        *(_INTEGER, _DATA, _DATA, _DATA),
    ),
    "specpair_foresee": (_DATA, _DATA, _INTEGER, _KEY, _KEY, _INTEGER, _DATA, _DATA),
    "specpair_check_rows": (_INTEGER, _DATA, _DATA, _INTEGER, _DATA, _INTEGER, _INTEGER, _INTEGER),
    "specpair_judge": (
        *(_DATA, _INTEGER, _INTEGER, _DATA, _DATA, _DATA, _INTEGER, _INTEGER),
        *(_DATA, _KEY, _KEY, _DATA),
    ),
    "specpair_explain": (
        *(_DATA, _INTEGER, _INTEGER, _DATA, _DATA, _DATA, _INTEGER, _INTEGER),
        *(_DATA, _DATA),
    ),
}


def declared(library: Any) -> Any:
    """The library, with these functions ready to be called. Without a signature ctypes passes 32 bits of a number."""
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = _INTEGER
    return library
