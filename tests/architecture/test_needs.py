"""The last line of a run says what was skipped for want of a tool."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.needs("promtool")
def test_of_promtool(): ...

@pytest.mark.needs("promtool", "node")
@pytest.mark.parametrize("value", [1, 2])
def test_of_both(value): ...

@pytest.mark.gpu
@pytest.mark.needs("openssl")
def test_that_is_left_out(): ...

def test_of_nothing(): ...
"""
LINE = (
    "skipped for want of a tool: node 2 (test_some.py), openssl 1 (test_some.py), promtool 3 (test_some.py); "
    "make test-tools installs node, openssl, promtool"
)


def last_lines(folder: Path, text: str, *options: str, path: str = "") -> list[str]:
    """Of a run of these tests, with the tools of `path`."""
    (folder / "test_some.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.needs", "-m", "not gpu", *options, str(folder)]
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout.strip().splitlines()[-2:]


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2", "--dist", "loadfile")], ids=["alone", "workers"])
def test_the_last_line_says_what_was_missing(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Also what a marker leaves out, and also from the workers; behind pytest's own summary, which stays."""
    summary, last = last_lines(tmp_path, TESTS, *options)
    assert "1 passed, 3 skipped" in summary
    assert last == LINE


def test_nothing_is_said_where_nothing_is_missing(tmp_path: Path) -> None:
    for name in ("promtool", "node", "openssl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    *_, last = last_lines(tmp_path, TESTS, path=str(tmp_path))
    assert "4 passed, 1 deselected" in last


def test_a_tool_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    lines = last_lines(tmp_path, TESTS.replace('"promtool"', '"promtol"'), "-q")
    assert any("3 errors" in line for line in lines)
