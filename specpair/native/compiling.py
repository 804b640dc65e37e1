"""Compiles `source/`, the C part of the package. Needs nothing but the standard library.

It names no OpenMP library: its parallel regions are left to the one that torch has loaded, so that the process has one
pool of threads.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
FLAGS = ("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wno-psabi", "-ffp-contract=off")
"""No product is fused with a sum unless the source says so: `plus_product` in `vectors.h`."""
UNITS = {
    "chains.c": ("-O2",),
    "decoder.c": ("-O2",),
    "eagle.c": ("-O2",),
    "growing.c": ("-O2",),
    "counting.c": ("-O3",),
    "drawing.c": ("-O3",),
    "judging.c": ("-O3",),
    "proposals.c": ("-O3",),
    "racing.c": ("-O3",),
    "softmax.c": ("-O3",),
    "threads.c": ("-O2",),
}
"""The files to compile, with their own flags."""
LIBRARIES = ("-lm",)
COMPILERS = ("cc", "gcc")
COMPILE_SECONDS = 300
"""Ten to twenty seconds of processor time for all files, of which a busy machine may give little."""


def find_compiler() -> str | None:
    """The path of the machine's C compiler."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def compile_library(compiler: str, processor_flags: tuple[str, ...], path: Path) -> None:
    """Puts the whole library at `path` at once; as many files are compiled at a time as there are processors. Raises
    OSError, SubprocessError."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        objects = {name: str(Path(scratch, name).with_suffix(".o")) for name in UNITS}

        def compile_unit(name: str) -> None:
            flags = (*FLAGS, *UNITS[name], *processor_flags)
            run(compiler, *flags, "-c", str(SOURCE / name), "-o", objects[name])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_unit, UNITS))
        whole = Path(scratch, "whole.so")
        run(compiler, "-shared", *objects.values(), "-o", str(whole), *LIBRARIES)
        whole.replace(path)


def run(*command: str) -> bytes:
    """What the command prints. Raises OSError, SubprocessError."""
    return subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS).stdout


def fingerprint(*others: bytes) -> str:
    """Changes with source, flags and `others`."""
    digest = hashlib.sha256(repr((FLAGS, UNITS, LIBRARIES)).encode())
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.read_bytes())
    for other in others:
        digest.update(other)
    return digest.hexdigest()[:16]
