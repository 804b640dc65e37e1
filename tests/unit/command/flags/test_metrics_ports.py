"""`--metrics-port` on the command line."""

import asyncio
import importlib
from typing import Any

import pytest
from typer.testing import CliRunner

import command.pair.up
from command.main import app
from command.pair.local_pair import ServicePlan


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[ServicePlan]:
    """What `specpair up` would start."""
    plans: list[ServicePlan] = []

    async def keep(given: list[ServicePlan], *_: Any, **__: Any) -> None:
        plans.extend(given)
        await asyncio.sleep(0)

    monkeypatch.setattr(command.pair.up, "_run", keep)
    return plans


def metrics_ports(plans: list[ServicePlan]) -> dict[str, str]:
    return {
        plan.name: plan.arguments[plan.arguments.index("--metrics-port") + 1]
        for plan in plans
        if "--metrics-port" in plan.arguments
    }


@pytest.mark.parametrize(
    ("flags", "draft", "target"),
    [
        ([], "9051", "9052"),
        (["--prompt", "x"], "0", "0"),
        (["--draft-metrics-port", "0", "--target-metrics-port", "7"], "0", "7"),
        (["--prompt", "x", "--target-metrics-port", "7"], "0", "7"),
    ],
)
def test_up_says_where(planned: list[ServicePlan], flags: list[str], draft: str, target: str) -> None:
    """Always, so that no environment variable gives both services the same port."""
    result = CliRunner().invoke(app, ["up", *flags], env={"SPECPAIR_METRICS_PORT": "5"})
    assert result.exit_code == 0, result.output
    assert metrics_ports(planned) == {"draft": draft, "target": target}


@pytest.mark.parametrize(
    ("service", "flags", "environment", "port"),
    [
        ("draft", [], {}, 9051),
        ("target", [], {}, 9052),
        ("draft", ["--metrics-port", "7"], {}, 7),
        ("target", [], {"SPECPAIR_METRICS_PORT": "8"}, 8),
        ("draft", ["--metrics-port", "0"], {}, None),
        ("target", ["--metrics-port", "0"], {}, None),
    ],
)
def test_serve_takes_it(
    service: str, flags: list[str], environment: dict[str, str], port: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int | None] = []
    module = importlib.import_module(f"{service}_service.serve")
    monkeypatch.setattr(module, "serve", lambda _, server: served.append(server.metrics_port))
    result = CliRunner().invoke(app, ["serve", service, *flags], env=environment)
    assert (result.exit_code, served) == (0, [port]), result.output
