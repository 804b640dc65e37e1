"""`python -m tests.sanitized pytest tests/unit`: runs a module of Python with compiled functions that check themselves.

`specpair/native/source` is compiled with GCC's AddressSanitizer and UndefinedBehaviorSanitizer: a read or write beyond
memory that somebody asked for, and arithmetic without a meaning in C, end the process. What they found is printed at
the end, and the status is 1. To compile takes some minutes of processor time, once for each version of the source.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

GCC = "gcc"
CHECKS = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
LIBRARIES = ("libasan.so", "libubsan.so")
PLUGIN = "tests.sanitized.own_memory"
ADDRESS_OPTIONS = "detect_leaks=0:handle_segv=0:abort_on_error=1:log_path="
"""Leaks are not looked for: an interpreter that ends leaves its memory to the system. SIGSEGV is for faulthandler."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    with tempfile.TemporaryDirectory(prefix="specpair-sanitized-") as scratch:
        folder = Path(scratch)
        environment = environment_of(folder)
        module, *own = arguments
        plugin = ["-p", PLUGIN] if module == "pytest" else []
        status = subprocess.run([sys.executable, "-m", module, *plugin, *own], env=environment).returncode
        found = [path.read_text() for path in sorted(folder.glob("found.*"))]
    print(*found, f"The sanitizers found {len(found)} problems.", sep="\n", file=sys.stderr)
    return 1 if found else status


def environment_of(folder: Path) -> dict[str, str]:
    """In which the compiler compiles with checks, and processes load the libraries of these. Raises SystemExit."""
    write_compiler(folder / "cc")
    own = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "LD_PRELOAD": " ".join(map(find_library, LIBRARIES)),
        "ASAN_OPTIONS": f"{ADDRESS_OPTIONS}{folder / 'found'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder / 'found'}",
    }
    return os.environ | own


def write_compiler(path: Path) -> None:
    """A compiler with another version, so the library that it makes has a name of its own."""
    checks = " ".join(CHECKS)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{checks}"\nexec {GCC} {checks} "$@"\n')
    path.chmod(0o755)


def find_library(name: str) -> str:
    try:
        found = subprocess.run([GCC, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"{GCC} is needed: {error}")
    if not Path(found.strip()).is_absolute():
        sys.exit(f"{GCC} has no {name}: install its sanitizers (Debian: libgcc-*-dev and libasan*)")
    return found.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
