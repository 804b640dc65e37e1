"""The Compose files say what they should, and Compose understands them. No engine is needed."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer.main
import yaml

from command.main import app
from coordinator.config import CoordinatorConfig
from draft_service.config import DraftConfig
from specpair.engine_config import EngineConfig
from specpair.flags import Range
from specpair.server.server import WATCHDOG_MARGIN_SECONDS
from tests.compose.engine import ROOT, SECURED, find_compose

SERVICES = {"target", "draft", "coordinator", "prometheus", "grafana"}
COMPOSE = find_compose()
needs_compose = pytest.mark.needs("docker compose")


ENGINE_FLAGS = (
    *("--dtype", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--cache", "--block-size"),
    *("--num-blocks", "--gpu-memory-utilization", "--runner", "--threads"),
)
PASSED_ON = re.compile(r"\$\{(\w+):-\}")


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


def flags_of(service: str) -> dict[str, str]:
    """The flags of `specpair serve`, by the variables that set them."""
    group: Any = typer.main.get_command(app)
    options = group.commands["serve"].commands[service].params
    named = [
        (name, option)
        for option in options
        for name in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or [])
    ]
    return {name: option.opts[0] for name, option in named}


@pytest.mark.parametrize("file", ["docker-compose.yml", SECURED])
@pytest.mark.parametrize("name", ["target", "draft", "coordinator"])
def test_each_variable_sets_a_flag(name: str, file: str) -> None:
    """A name that no flag listens to would be a setting that does nothing."""
    environment = services(file)[name]["environment"]
    ours = {variable for variable in environment if variable.startswith("SPECPAIR_")}
    assert ours <= flags_of(name).keys()


@pytest.mark.parametrize("name", ["target", "draft"])
def test_flags_of_the_engines_are_set_for_each_model(name: str) -> None:
    environment = services("docker-compose.yml")[name]["environment"]
    flags = flags_of(name)
    passed = {
        flags[variable]: PASSED_ON.fullmatch(value) for variable, value in environment.items() if variable in flags
    }
    for flag in ENGINE_FLAGS:
        match = passed[flag]
        assert match is not None and match[1] == f"SPECPAIR_{name}_{flag[2:]}".upper().replace("-", "_")


def test_every_variable_is_documented() -> None:
    text = "".join((ROOT / file).read_text() for file in ("docker-compose.yml", "docker-compose.gpu.yml", SECURED))
    variables = set(re.findall(r"\$\{(\w+)", text))
    documented = (ROOT / "deploy" / "README.md").read_text()
    per_engine = {
        f"SPECPAIR_{name}_{flag[2:]}".upper().replace("-", "_") for name in ("target", "draft") for flag in ENGINE_FLAGS
    }
    assert all(f"`{flag}`" in documented for flag in ENGINE_FLAGS)
    assert {name for name in variables - per_engine if f"`{name}`" not in documented} == set()


def limits_of(config: type, field: str) -> Range:
    """What a field may be."""
    (limits,) = (
        entry for entry in get_type_hints(config, include_extras=True)[field].__metadata__ if isinstance(entry, Range)
    )
    return limits


def test_the_limits_of_a_variable_that_all_three_have_are_documented() -> None:
    """A value that one of them refuses would start it again and again: the coordinator alone takes 0."""
    limits = [limits_of(kind, "max_num_speculative_tokens") for kind in (EngineConfig, DraftConfig, CoordinatorConfig)]
    both = f"{max(one.low for one in limits)} to {min(one.high for one in limits)}"
    readme = (ROOT / "deploy" / "README.md").read_text()
    (row,) = re.findall(r"^\| `SPECPAIR_MAX_NUM_SPECULATIVE_TOKENS` .*", readme, re.MULTILINE)
    assert both in row
    assert all(
        "SPECPAIR_MAX_NUM_SPECULATIVE_TOKENS" in services("docker-compose.yml")[name]["environment"]
        for name in ("target", "draft", "coordinator")
    )


def test_folders_of_the_host_are_relabelled_for_selinux(service: dict[str, Any]) -> None:
    folders = [volume for volume in service.get("volumes", []) if volume.startswith("./")]
    assert all(volume.endswith(":ro,z") for volume in folders)


@pytest.mark.parametrize("name", ["target", "draft", "coordinator"])
def test_services_are_not_killed_while_they_finish_requests(name: str) -> None:
    group: Any = typer.main.get_command(app)
    options = {option.name: option for option in group.commands["serve"].commands[name].params}
    needed = options["grace_seconds"].default + WATCHDOG_MARGIN_SECONDS
    assert float(services("docker-compose.yml")[name]["stop_grace_period"].removesuffix("s")) > needed


def test_what_the_images_copy_is_in_the_build_context() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    copied = [Path(source) for sources in copies for source in sources.split()]
    assert [str(path) for path in copied if kept.isdisjoint(map(str, (path, *path.parents)))] == []
    assert all((ROOT / path).exists() for path in kept)


def test_health_checks_start_no_heavy_program() -> None:
    """What they cost is paid every few seconds: gRPC's Python takes half a second of a processor to load."""
    for name in ("target", "draft", "coordinator"):
        assert services("docker-compose.yml")[name]["healthcheck"]["test"][1:5] == [
            "python",
            "-S",
            "-E",
            "/opt/probe.py",
        ]


def test_a_secured_port_is_published_on_the_loopback_interface_unless_that_is_said() -> None:
    ports = services(SECURED)["coordinator"]["ports"]
    assert len(ports) == 2 and all(port.startswith("${SPECPAIR_PUBLISH:-127.0.0.1}:") for port in ports)


def test_secrets_are_mounted_as_folders() -> None:
    """A file that is replaced would still be the old one in its container."""
    for name, service in services(SECURED).items():
        assert service["volumes"] == [f"${{SPECPAIR_SECRETS:-./secrets}}/{name}:/run/specpair:ro,z"]


def test_prometheus_scrapes_the_same_with_a_token() -> None:
    plain, secured = (
        yaml.safe_load((ROOT / "deploy" / "prometheus" / name).read_text())
        for name in ("prometheus.yml", "prometheus-secured.yml")
    )
    access = {
        "scheme": "https",
        "tls_config": {"ca_file": "/run/specpair/ca.crt"},
        "authorization": {"credentials_file": "/run/specpair/token"},
    }
    plain["scrape_configs"] = [{**job, **access} for job in plain["scrape_configs"]]
    assert secured == plain
    command = services("docker-compose.yml")["prometheus"]["command"]
    assert services(SECURED)["prometheus"]["command"] == [
        word.replace("prometheus.yml", "prometheus-secured.yml") for word in command
    ]


@needs_compose
@pytest.mark.parametrize("files", [[], ["docker-compose.gpu.yml"], [SECURED], ["docker-compose.gpu.yml", SECURED]])
def test_compose_understands(files: list[str]) -> None:
    assert COMPOSE is not None
    named = [word for file in ("docker-compose.yml", *files) for word in ("--file", file)]
    done = subprocess.run([*COMPOSE, *named, "config"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == SERVICES


@needs_compose
def test_compose_passes_settings_on() -> None:
    assert COMPOSE is not None
    settings = {"SPECPAIR_DRAFT_DTYPE": "float32", "SPECPAIR_TARGET_THREADS": "3", "SPECPAIR_LOG_FORMAT": ""}
    done = subprocess.run(
        [*COMPOSE, "config"],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)["services"]
    target, draft = read["target"]["environment"], read["draft"]["environment"]
    assert (target["SPECPAIR_DTYPE"], draft["SPECPAIR_DTYPE"]) == ("", "float32")
    assert (target["SPECPAIR_THREADS"], draft["SPECPAIR_THREADS"]) == ("3", "")
    assert target["SPECPAIR_LOG_FORMAT"] == "" and target["SPECPAIR_HOST"] == "0.0.0.0"
