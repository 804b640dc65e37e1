"""The flags of the engine on the command line: what reaches the services, and what an empty variable means."""

import asyncio
import importlib
from dataclasses import fields
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import command.pair.up
from command.main import app
from command.pair.local_pair import ServicePlan
from specpair.engine_config import EngineConfig


def variables(*path: str) -> set[str]:
    """Environment variables of the flags of a command."""
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return {
        name
        for option in command.params
        for name in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or [])
    }


def served_configs(
    monkeypatch: pytest.MonkeyPatch, service: str, environment: dict[str, str], *flags: str
) -> list[Any]:
    """What `specpair serve` hands to a service."""
    served: list[Any] = []
    module = importlib.import_module("coordinator.serve" if service == "coordinator" else f"{service}_service.serve")
    monkeypatch.setattr(module, "serve", lambda *configs: served.extend(configs))
    result = CliRunner().invoke(app, ["serve", service, *flags], env=environment)
    assert result.exit_code == 0, result.output
    return served


@pytest.mark.parametrize("service", ["draft", "target", "coordinator"])
def test_an_empty_variable_is_none(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass every variable on, empty where it is not set."""
    known = variables("serve", service)
    assert len(known) >= 10
    usual = served_configs(monkeypatch, service, dict.fromkeys(known))  # type: ignore[arg-type]
    assert served_configs(monkeypatch, service, dict.fromkeys(known, "")) == usual


@pytest.mark.parametrize("service", ["draft", "target"])
def test_the_share_of_a_gpu_reaches_the_engine(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"SPECPAIR_GPU_MEMORY_UTILIZATION": "0.3"}
    config = served_configs(monkeypatch, service, environment)[0]
    engine: EngineConfig = config.engine if service == "draft" else config
    assert engine.gpu_memory_utilization == 0.3
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    config = served_configs(monkeypatch, service, {})[0]
    engine = config.engine if service == "draft" else config
    assert engine.gpu_memory_utilization == defaults["gpu_memory_utilization"]


@pytest.mark.parametrize(
    ("flags", "draft", "target"),
    [
        ([], "none", "none"),
        (["--target-quantization", "int8"], "none", "int8"),
        (["--target-quantization", "int8", "--draft-quantization", "int4"], "int4", "int8"),
    ],
)
def test_up_quantises_each_model_as_asked(
    flags: list[str], draft: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned("--quantization", flags, monkeypatch) == {"draft": draft, "target": target}


@pytest.mark.parametrize(
    ("flags", "draft", "target"),
    [
        ([], "0.18", "0.72"),
        (["--gpu-memory-utilization", "0.5"], "0.1", "0.4"),
        (["--target-device", "cuda:0", "--draft-device", "cuda:1"], "0.9", "0.9"),
        (["--drafter", "uniform"], "0.9", "0.9"),
    ],
)
def test_up_divides_a_gpu(flags: list[str], draft: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned("--gpu-memory-utilization", flags, monkeypatch) == {"draft": draft, "target": target}


def planned(name: str, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The value of a flag that `specpair up` gives to each model service."""
    plans: list[ServicePlan] = []

    async def keep(given: list[ServicePlan], *_: Any, **__: Any) -> None:
        plans.extend(given)
        await asyncio.sleep(0)

    monkeypatch.setattr(command.pair.up, "_run", keep)
    result = CliRunner().invoke(app, ["up", *flags])
    assert result.exit_code == 0, result.output
    return {plan.name: plan.arguments[plan.arguments.index(name) + 1] for plan in plans if plan.name != "coordinator"}
