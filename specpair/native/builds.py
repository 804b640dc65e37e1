"""Libraries that are compiled ahead, for machines without a compiler: the images carry them.

There is one for each of a few kinds of x86 processors, and a processor gets the first that needs nothing it lacks. A
file is named after source and flags, so that no other version of the source is ever used. To make them:
`python -m specpair.native.builds FOLDER`.
"""

import platform
import sys
from pathlib import Path
from typing import NamedTuple

from specpair.native.compiling import compile_library, find_compiler, fingerprint

BUILDS_FOLDER = Path(__file__).parent / "built"
CPUINFO = Path("/proc/cpuinfo")

LEVEL_2 = frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])
LEVEL_3 = LEVEL_2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
LEVEL_4 = LEVEL_3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
"""What x86-64-v2 to v4 need, in Linux's names: the psABI's table with `abm` for LZCNT and `pni` for SSE3."""


class Build(NamedTuple):
    """A library for all processors that have some features."""

    name: str
    flags: tuple[str, ...]
    """For the compiler."""
    needs: frozenset[str]
    """In the names of `/proc/cpuinfo`."""

    @property
    def file_name(self) -> str:
        return f"native-{self.name}-{fingerprint(' '.join(self.flags).encode())}.so"


BUILDS = (
    Build(
        "x86-64-v4-bf16",
        ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"),
        LEVEL_4 | {"avx512_vnni", "avx512_bf16"},
    ),
    Build("x86-64-v4-vnni", ("-march=x86-64-v4", "-mavx512vnni"), LEVEL_4 | {"avx512_vnni"}),
    Build("x86-64-v4", ("-march=x86-64-v4",), LEVEL_4),
    Build("x86-64-v3", ("-march=x86-64-v3",), LEVEL_3),
)
"""The best first."""


def suitable_build() -> Path | None:
    """The file of the best library that is there and runs on this processor."""
    if not BUILDS_FOLDER.is_dir():
        return None
    found = processor_features()
    suitable = (BUILDS_FOLDER / build.file_name for build in BUILDS if build.needs <= found)
    return next((path for path in suitable if path.is_file()), None)


def processor_features() -> frozenset[str]:
    """What all processors of this machine have and Linux supports; nothing if that cannot be read."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return frozenset()
    listed = [frozenset(line.partition(":")[2].split()) for line in lines if line.partition(":")[0].strip() == "flags"]
    return frozenset.intersection(*listed) if listed else frozenset()


def make_builds(folder: Path) -> Path:
    """Compiles all for x86, and none elsewhere. Raises OSError, SubprocessError."""
    folder.mkdir(parents=True, exist_ok=True)
    if platform.machine() != "x86_64":
        return folder
    compiler = find_compiler()
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    for build in BUILDS:
        compile_library(compiler, build.flags, folder / build.file_name)
    return folder


if __name__ == "__main__":
    make_builds(Path(sys.argv[1]))
