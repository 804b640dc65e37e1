"""The compiled part of the native runner: built from `native/` by the machine's own C compiler at first use, and kept.

The file is named after everything that it depends on: source, compiler and processor. Its parallel regions use the
OpenMP library that torch has loaded, so the process has one pool of threads.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "native"
FLAGS = ("-O2", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wno-psabi")
COMPILERS = ("cc", "gcc")
COMPILE_SECONDS = 60


@cache
def native_library() -> Any | None:
    """The library; None, with a line in the log, if there is no compiler or it cannot build it."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if sys.platform != "linux" or compiler is None:
        log.info("no C compiler for the native runner; forward passes take longer without it")
        return None
    try:
        return loaded(compiler)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: there is no home folder
        log.warning("the native runner cannot be built: %s", error)
        return None


def loaded(compiler: str) -> Any:
    """The library; a file that is damaged is built again. Raises OSError, RuntimeError, SubprocessError."""
    path = built(compiler)
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return ctypes.CDLL(str(built(compiler)))


def built(compiler: str) -> Path:
    """The library's file, compiled unless it is there already. Raises OSError, SubprocessError."""
    path = folder() / f"decoder-{fingerprint(compiler)}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            part, whole = Path(scratch, "decoder.o"), Path(scratch, "decoder.so")
            run(compiler, *FLAGS, "-c", str(SOURCE / "decoder.c"), "-o", str(part))
            run(compiler, "-shared", str(part), "-o", str(whole))  # without OpenMP: it is torch's that is used
            whole.replace(path)
    return path


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS)


def folder() -> Path:
    """The user's own cache folder. Raises OSError if it cannot be made or others may write to it."""
    own = Path.home() / ".cache" / "specpair"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = own.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{own} must belong to this user, and only this user may write to it")
    return own


def fingerprint(compiler: str) -> str:
    """Changes with source, flags, compiler and processor."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.read_bytes())
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=COMPILE_SECONDS)
    digest.update(version.stdout + processor())
    return digest.hexdigest()[:16]


def processor() -> bytes:
    """What `-march=native` looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    names = (b"model", b"flags", b"Features", b"CPU part")
    return b"".join(sorted({line for line in lines if line.startswith(names)}))
