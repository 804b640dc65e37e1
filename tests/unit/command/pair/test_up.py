"""What `specpair up` starts, and what it leaves to the services."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import command.pair.up
from command.main import app
from command.pair.local_pair import ServicePlan

CONFIG = """
[serve.target]
max-num-seqs = 5
head-quantization = "none"

[up]
work-ahead = "off"
"""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The arguments of what `specpair up` would start, by service."""
    plans: dict[str, list[str]] = {}

    async def keep(given: list[ServicePlan], *_: Any, **__: Any) -> None:
        plans.update({plan.name: plan.arguments for plan in given})
        await asyncio.sleep(0)

    monkeypatch.setattr(command.pair.up, "_run", keep)
    return plans


def run_up(*flags: str, **environment: str) -> None:
    result = CliRunner().invoke(app, ["up", *flags], env=environment)
    assert result.exit_code == 0, result.output


def value(arguments: list[str], flag: str) -> str | None:
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_what_nobody_says_is_left_to_the_services(planned: dict[str, list[str]]) -> None:
    run_up()
    for name in ("draft", "target"):
        assert value(planned[name], "--max-num-seqs") is None and "--dtype" not in planned[name]
        assert value(planned[name], "--device") == "auto", "variables for a service alone do not count"
    assert "--work-ahead" not in planned["coordinator"] and "--config" not in planned["coordinator"]


def test_sections_of_services_in_the_file_hold_unless_up_says_otherwise(
    planned: dict[str, list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "specpair.toml"
    file.write_text(CONFIG)
    run_up("--config", str(file), "--max-model-len", "64")
    assert all(value(arguments, "--config") == str(file) for arguments in planned.values())
    assert value(planned["target"], "--max-num-seqs") is None, "the target reads its own section"
    assert value(planned["target"], "--max-model-len") == value(planned["draft"], "--max-model-len") == "64"
    assert value(planned["coordinator"], "--work-ahead") == "off", "said in up's own section"
    run_up("--config", str(file), "--max-num-seqs", "7")
    assert value(planned["target"], "--max-num-seqs") == "7", "a flag beats the file"


def test_a_flag_with_the_usual_value_is_said_all_the_same(planned: dict[str, list[str]]) -> None:
    run_up("--work-ahead", "auto", "--head-tree-tokens", "0")
    assert value(planned["coordinator"], "--work-ahead") == "auto"
    assert value(planned["target"], "--head-tree-tokens") == "0"
    run_up(SPECPAIR_MAX_NUM_SEQS="9")
    assert value(planned["target"], "--max-num-seqs") == "9"
