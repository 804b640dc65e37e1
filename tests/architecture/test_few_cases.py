"""Of a slow test a few cases run where that is asked for, and all of them otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.few_cases("b", "c")
@pytest.mark.parametrize("value", ["a", "b", "c", "d"])
def test_by_name(value): ...

@pytest.mark.few_cases(2)
@pytest.mark.parametrize("value", range(9))
def test_by_number(value): ...

@pytest.mark.few_cases(5)
def test_of_one_case(): ...

@pytest.mark.few_cases()
def test_of_none(): ...

def test_of_all(): ...
"""


def run(folder: Path, *options: str, text: str = TESTS) -> tuple[set[str], str]:
    """The tests that ran, and what else was printed."""
    (folder / "test_some.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.few_cases", "-v", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    passed = [line.split()[0] for line in done.stdout.splitlines() if " PASSED" in line]
    return {name.removeprefix("test_some.py::") for name in passed}, done.stdout + done.stderr


def test_a_few_cases_run_the_same_in_each_run(tmp_path: Path) -> None:
    ran, printed = run(tmp_path, "--few-cases")
    by_number = {name for name in ran if name.startswith("test_by_number")}
    assert ran - by_number == {"test_by_name[b]", "test_by_name[c]", "test_of_one_case", "test_of_all"}
    assert len(by_number) == 2
    assert "10 deselected" in printed
    assert run(tmp_path, "--few-cases")[0] == ran


def test_otherwise_all_of_them_run(tmp_path: Path) -> None:
    assert len(run(tmp_path)[0]) == 4 + 9 + 3


def test_a_case_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    ran, printed = run(tmp_path, "--few-cases", text=TESTS.replace('"b", "c")', '"b", "e", "f")'))
    assert not ran and "few_cases of test_some.py::test_by_name: no case is called e, f" in printed


def test_what_failed_runs_once_more_by_itself(tmp_path: Path) -> None:
    """With the same few cases, though of a test only some of these are collected then."""
    text = TESTS.replace("test_by_name(value): ...", "test_by_name(value): assert value != 'c'")
    assert "1 failed" in run(tmp_path, "--few-cases", text=text)[1]
    ran, printed = run(tmp_path, "--few-cases", "--last-failed", text=TESTS)
    assert ran == {"test_by_name[c]"}, printed


@pytest.mark.parametrize("target", ["test", "test-all"])
def test_make_says_which_cases_run(target: str) -> None:
    """A dry run needs no environment."""
    command = ["make", "--dry-run", "--old-file", "setup", target]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    assert planned.count("-m pytest") == 2
    assert planned.count("--few-cases") == (2 if target == "test" else 0)
