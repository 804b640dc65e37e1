"""`--deterministic` on the command line."""

import pytest
from typer.testing import CliRunner

from command.main import app
from command.pair.local_pair import plan_service


@pytest.mark.parametrize("command", [["serve", "draft"], ["serve", "target"], ["up"]])
def test_help_says_what_it_gives_and_costs(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "500"})
    assert "--deterministic" in result.stdout and "SPECPAIR_DETERMINISTIC" in result.stdout
    assert "same bits" in result.stdout and "Costs speed" in result.stdout


def test_a_switch_has_no_value_and_is_absent_when_off() -> None:
    flags = {"--deterministic": True, "--quiet": False, "--max-model-len": None, "--max-num-seqs": 1}
    plan = plan_service("target", flags, host="127.0.0.1", port=5)
    expected = "serve target --deterministic --max-num-seqs 1 --host 127.0.0.1 --port 5"
    assert plan.arguments == expected.split()
