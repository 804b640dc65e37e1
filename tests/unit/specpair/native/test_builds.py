"""Libraries that are compiled ahead: a processor gets the best that it can run, and none that it cannot."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specpair.models.fused_runner import FusedRunner
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.native_runner import NativeRunner
from specpair.models.self_check import chunked_logits, plain_logits
from specpair.native import builds
from specpair.native import library as building
from specpair.native.builds import (
    BUILDS,
    LEVEL_2,
    LEVEL_3,
    LEVEL_4,
    Build,
    make_builds,
    processor_features,
    suitable_build,
)
from specpair.native.compiling import find_compiler
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_fused_runner import ids

pytestmark = pytest.mark.timeout(600)  # the first test of a worker waits for four builds

ALL = LEVEL_4 | {"avx512_vnni", "avx512_bf16"}
NAMES = [build.name for build in BUILDS]
SEEN_IN_CODE = {
    "x86-64-v4-bf16": ("%zmm", "vpdpbusd", "vdpbf16ps"),
    "x86-64-v4-vnni": ("%zmm", "vpdpbusd"),
    "x86-64-v4": ("%zmm",),
    "x86-64-v3": (),
}
"""What the code of each build has of instructions and registers that not every processor has."""
needs_x86_compiler = pytest.mark.skipif(
    platform.machine() != "x86_64" or find_compiler() is None, reason="needs a C compiler, on x86"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the builds are looked for; empty."""
    empty = tmp_path / "builds"
    empty.mkdir()
    monkeypatch.setattr(builds, "BUILDS_FOLDER", empty)
    native_library.cache_clear()
    yield empty
    native_library.cache_clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_builds(tmp_path_factory.mktemp("made"))


def describe(monkeypatch: pytest.MonkeyPatch, file: Path, *processors: frozenset[str]) -> None:
    """Makes this machine one with such processors."""
    listed = [
        f"processor\t: {i}\nflags\t\t: {' '.join(sorted(own))}\nbugs\t\t: x\n" for i, own in enumerate(processors)
    ]
    file.write_text("\n".join(listed))
    monkeypatch.setattr(builds, "CPUINFO", file)


@pytest.mark.parametrize(
    ("processors", "expected"),
    [
        ([ALL | {"avx512vbmi"}], "x86-64-v4-bf16"),
        ([ALL - {"avx512_bf16"}], "x86-64-v4-vnni"),
        ([ALL - {"avx512_vnni"}], "x86-64-v4"),
        ([ALL - {"avx512vl"}], "x86-64-v3"),
        ([ALL, LEVEL_3], "x86-64-v3"),
        ([LEVEL_3 | {"avx_vnni"}], "x86-64-v3"),
        ([ALL - {"fma"}], None),
        ([ALL - {"popcnt"}], None),
        ([LEVEL_2], None),
        ([], None),
    ],
)
def test_a_processor_gets_the_best_that_it_can_run(
    processors: list[frozenset[str]],
    expected: str | None,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for build in BUILDS:
        (folder / build.file_name).touch()
    describe(monkeypatch, tmp_path / "cpuinfo", *processors)
    chosen = suitable_build()
    assert (chosen and chosen.name) == next((one.file_name for one in BUILDS if one.name == expected), None)


def test_only_files_of_this_source_are_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, tmp_path / "cpuinfo", ALL)
    assert suitable_build() is None
    (folder / BUILDS[-1].file_name).touch()
    assert suitable_build() == folder / BUILDS[-1].file_name
    changed = shutil.copytree(Path(builds.__file__).parent / "source", tmp_path / "source")
    with (changed / "decoder.c").open("a") as source:
        source.write("/* another */")
    monkeypatch.setattr("specpair.native.compiling.SOURCE", changed)
    assert suitable_build() is None


def test_a_processor_that_cannot_be_read_gets_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "CPUINFO", tmp_path / "nowhere")
    (folder / BUILDS[-1].file_name).touch()
    assert processor_features() == frozenset() and suitable_build() is None


@pytest.mark.few_cases()
@needs_x86_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_build_has_only_what_its_processors_have(name: str, made: Path) -> None:
    """And what they gain by."""
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump")
    path = made / build_of(name).file_name
    code = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True, timeout=60).stdout
    assert tuple(one for one in SEEN_IN_CODE["x86-64-v4-bf16"] if one in code) == SEEN_IN_CODE[name]
    assert "vfmadd" in code


@pytest.mark.few_cases()
@needs_x86_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_a_compiler_a_build_serves(
    name: str, made: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_of(name)
    if not build.needs <= processor_features():
        pytest.skip("this processor cannot run it")
    shutil.copy(made / build.file_name, folder)
    monkeypatch.setattr(building, "find_compiler", lambda: None)
    config = engine_config(make_model(tmp_path / "model"))
    runner = load_runner(config)[1]
    assert isinstance(runner, NativeRunner)
    expected = torch.stack([plain_logits(load(config), row) for row in ids()])
    assert torch.allclose(chunked_logits(runner, ids()), expected, atol=2e-4)


def test_a_damaged_build_is_no_harm(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, tmp_path / "cpuinfo", ALL)
    (folder / BUILDS[0].file_name).write_bytes(b"not a library")
    monkeypatch.setattr(building, "find_compiler", lambda: None)
    assert isinstance(load_runner(engine_config(make_model(tmp_path / "model")))[1], FusedRunner)


def build_of(name: str) -> Build:
    return next(build for build in BUILDS if build.name == name)
