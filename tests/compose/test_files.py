"""The Compose files say what they should, and Compose understands them. No engine is needed."""

import subprocess
from typing import Any

import pytest
import yaml

from tests.compose.engine import ROOT, find_compose

SERVICES = {"target", "draft", "coordinator", "prometheus", "grafana"}
COMPOSE = find_compose()
needs_compose = pytest.mark.skipif(COMPOSE is None, reason="neither `docker compose` nor docker-compose is installed")


def services(file: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / file).read_text())["services"]


@pytest.fixture(params=sorted(SERVICES))
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    return services("docker-compose.yml")[request.param]


def test_all_services_are_there() -> None:
    assert set(services("docker-compose.yml")) == SERVICES


def test_service_can_change_nothing(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_service_has_limits_and_a_health_check(service: dict[str, Any]) -> None:
    assert service["mem_limit"] and service["pids_limit"]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"


def test_ports_are_published_on_the_loopback_interface(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_models_are_on_devices_of_their_own() -> None:
    gpu = services("docker-compose.gpu.yml")
    devices = [gpu[name]["deploy"]["resources"]["reservations"]["devices"][0] for name in ("target", "draft")]
    assert devices[0]["device_ids"] != devices[1]["device_ids"]


@needs_compose
@pytest.mark.parametrize("files", [["docker-compose.yml"], ["docker-compose.yml", "docker-compose.gpu.yml"]])
def test_compose_understands(files: list[str]) -> None:
    assert COMPOSE is not None
    named = [word for file in files for word in ("--file", file)]
    done = subprocess.run([*COMPOSE, *named, "config"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == SERVICES
