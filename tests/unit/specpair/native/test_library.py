"""The compiled library is built once and kept; whatever is in the way of it, a model is served."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specpair.errors import ModelRefusedError
from specpair.models.fused_runner import FusedRunner
from specpair.models.load_runner import load_runner
from specpair.native import compiling
from specpair.native import library as building
from specpair.native.compiling import find_compiler
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import make_model

ROOT = Path(__file__).parents[4]
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing that was found before or in a test is known."""
    native_library.cache_clear()
    yield
    native_library.cache_clear()


@pytest.fixture
def whole() -> bytes:
    """The library as it was built on this machine."""
    compiler = find_compiler()
    assert compiler is not None
    return building.built(compiler).read_bytes()


def test_without_a_compiler_the_fused_runner_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "find_compiler", lambda: None)
    config = engine_config(make_model(tmp_path))
    assert isinstance(load_runner(config)[1], FusedRunner)
    with pytest.raises(ModelRefusedError, match="--runner native: it needs a C compiler"):
        load_runner(engine_config(tmp_path, runner="native"))


@needs_compiler
def test_a_compiler_that_fails_is_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "FLAGS", ("-no-such-flag",))
    monkeypatch.setattr(building, "folder", lambda: tmp_path)
    assert isinstance(load_runner(engine_config(make_model(tmp_path / "model")))[1], FusedRunner)


@needs_compiler
def test_a_user_without_a_home_folder_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry in /etc/passwd."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(RuntimeError):
        Path.home()
    assert native_library() is None


@needs_compiler
def test_it_loads_where_torch_is_not() -> None:
    """Its passes use the threads of torch's OpenMP library. Without one they would have one thread; a library that
    cannot be loaded would be built again and again."""
    program = (
        "import sys; from specpair.native import library as own; print(own.native_library(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("<CDLL") and done.stdout.endswith(" False\n"), done.stdout + done.stderr


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What comes out of each build to come, in an empty folder."""
    outcomes: list[bytes] = []
    monkeypatch.setattr(building, "folder", lambda: tmp_path)
    monkeypatch.setattr(building, "compile_library", lambda compiler, flags, path: path.write_bytes(outcomes.pop(0)))
    return outcomes


@needs_compiler
def test_a_damaged_file_is_built_again_once(whole: bytes, builds: list[bytes]) -> None:
    builds += [b"not a library", whole]
    assert native_library() is not None and not builds
    native_library.cache_clear()
    assert native_library() is not None, "it is whole now"


@needs_compiler
def test_what_is_damaged_even_then_is_no_harm(builds: list[bytes]) -> None:
    builds += [b"not a library", b"nor this"]
    assert native_library() is None and not builds


@needs_compiler
def test_a_file_that_is_there_is_not_built_again(whole: bytes, builds: list[bytes]) -> None:
    builds.append(whole)
    assert native_library() is not None
    native_library.cache_clear()
    assert native_library() is not None


def test_a_cache_folder_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    building.folder().chmod(0o777)
    with pytest.raises(PermissionError, match="only this user"):
        building.folder()
