"""The library of compiled functions: one that came with the package, or else built from `source/` by the machine's own
C compiler at first use, and kept.

The file that is built here is named after everything that it depends on: source, compiler and processor.
"""

import ctypes
import logging
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from specpair.native.builds import suitable_build
from specpair.native.compiling import compile_library, find_compiler, fingerprint, run
from specpair.native.signatures import declared

log = logging.getLogger(__name__)

OWN_PROCESSOR = ("-march=native",)
MOST_LOCKED = 1 << 17
"""Numbers at which a function looks without letting other threads run: less than 0.1 ms."""


@cache
def native_library() -> Any | None:
    """The library; None, with a line in the log, if none came along and there is no compiler or it cannot build it.
    Passes use the threads of the OpenMP library that torch has loaded, and one thread where there is none."""
    if sys.platform != "linux" or sys.byteorder != "little":
        return without("compiled functions are for Linux on little-endian processors")
    if (path := suitable_build()) is not None:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            log.warning("the compiled library %s cannot be loaded: %s", path.name, error)
    if (compiler := find_compiler()) is None:
        return without("no C compiler")
    try:
        return loaded(compiler)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: there is no home folder
        log.warning("the compiled library cannot be built: %s", error)
        return None


def quick_functions(number_count: int = 0) -> Any | None:
    """The functions of `signatures`, if the library has been loaded, as it is with every model: this neither reads a
    file nor compiles. They keep the interpreter's lock, as they take microseconds, and to get it back can take more;
    not where they look at many numbers, so many that other threads would wait."""
    library = native_library() if native_library.cache_info().currsize else None
    return None if library is None else _quick(library, number_count <= MOST_LOCKED)


@cache
def _quick(library: Any, keeps_lock: bool) -> Any:
    return declared((ctypes.PyDLL if keeps_lock else ctypes.CDLL)(library._name, handle=library._handle))


def without(reason: str) -> None:
    log.info("%s; forward passes, drawing and judging on a CPU take longer without them", reason)


def loaded(compiler: str) -> Any:
    """The library; a file that is damaged is built again. Raises OSError, RuntimeError, SubprocessError."""
    path = built(compiler)
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return ctypes.CDLL(str(built(compiler)))


def built(compiler: str) -> Path:
    """The library's file, compiled unless it is there already. Raises OSError, RuntimeError, SubprocessError."""
    path = folder() / f"native-{fingerprint(run(compiler, '--version'), processor())}.so"
    if not path.exists():
        compile_library(compiler, OWN_PROCESSOR, path)
    return path


def folder() -> Path:
    """The user's own cache folder. Raises RuntimeError without a home; OSError if it cannot be made or others may
    write to it."""
    own = Path.home() / ".cache" / "specpair"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = own.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{own} must belong to this user, and only this user may write to it")
    return own


def processor() -> bytes:
    """What `-march=native` looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    names = (b"model", b"flags", b"Features", b"CPU part")
    return b"".join(sorted({line for line in lines if line.startswith(names)}))
