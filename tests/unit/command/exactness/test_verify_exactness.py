"""`specpair verify-exactness` without a server: help, limits, and status 2 for all that keeps it from running."""

import sys

import pytest
from typer.testing import CliRunner

from command.main import app

NOWHERE = "127.0.0.1:1"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = CliRunner().invoke(app, ["verify-exactness", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_help_names_the_options() -> None:
    status, stdout, _ = run("--help")
    words = ["--draws", "--alpha", "--rule", "--prompt", "--concurrency", "--seed", "--json", "near-tie", "status 0"]
    assert status == 0 and [word for word in words if word not in stdout] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", "19"], "--draws: is 19; it must be between 20 and 1000000"),
        (["--alpha", "0"], "--alpha: is 0.0; it must be above 0 and below 1"),
        (["--alpha", "nan"], "--alpha: is nan"),
        (["--seed", "-1"], "--seed: is -1"),
        (["--concurrency", "0"], "--concurrency: is 0"),
    ],
)
def test_a_wrong_value_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    status, stdout, stderr = run(*arguments, "--address", NOWHERE)
    assert (status, stdout) == (2, "")
    assert stderr.startswith(f"specpair: {message}") and stderr.count("\n") == 1


def test_an_absent_coordinator_is_status_2_because_nothing_was_tested() -> None:
    problem = f"the coordinator at {NOWHERE} cannot be reached"
    message = f"specpair: {problem}; `specpair up` starts one, --address says where one is\n"
    assert run("--address", NOWHERE) == (2, "", message)


def test_missing_scipy_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert run() == (2, "", "specpair: the statistics need scipy: pip install 'specpair[verify]'\n")
