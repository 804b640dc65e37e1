"""Images, ports, probes, flags, variables and folders in the manifests are those of the services."""

import re
import sys
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from command import serve
from command.main import app
from coordinator.config import CoordinatorConfig
from coordinator.http.authentication import OPEN_PATHS
from coordinator.http.operations import router
from specpair.security.settings import UNPROTECTED
from specpair.server.authentication import Authenticator
from specpair.server.metrics_endpoint import metrics_app
from specpair.server.server import WATCHDOG_MARGIN_SECONDS
from tests.unit.deploy.kubernetes.manifests import (
    OVERLAYS,
    PODS,
    ROOT,
    SECURED_OVERLAYS,
    SERVICES,
    SERVING,
    Pod,
    of_kind,
)

AWAITED: set[str] = set()
"""Flags in the manifests that `specpair serve` is about to have."""
NOT_OURS = {"HF_TOKEN"}
"""Variables that a library reads."""
PORTS = {
    "coordinator": {"grpc": serve.COORDINATOR_PORT, "http": serve.HTTP_PORT},
    "draft": {"grpc": serve.DRAFT_PORT, "metrics": serve.DRAFT_METRICS_PORT},
    "target": {"grpc": serve.TARGET_PORT, "metrics": serve.TARGET_METRICS_PORT},
}
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?")
"""The schemas take any text."""
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
every_pod = pytest.mark.parametrize("pod", PODS, ids=str)
every_serving_pod = pytest.mark.parametrize("pod", SERVING, ids=str)


def options(service: str) -> list[Any]:
    group: Any = typer.main.get_command(app)
    return group.commands["serve"].commands[service].params


def composed_images(file: str) -> dict[str, str]:
    """Of our services, with the defaults of the variables."""
    found = yaml.safe_load((ROOT / file).read_text())["services"]
    return {
        name: re.sub(r"\$\{\w+:-(\w+)\}", r"\1", service["image"])
        for name, service in found.items()
        if name in SERVICES and "image" in service
    }


@every_pod
def test_the_image_is_one_that_compose_builds(pod: Pod) -> None:
    file = "docker-compose.yml" if pod.overlay in ("cpu", "secured") else "docker-compose.gpu.yml"
    images = composed_images("docker-compose.yml") | composed_images(file)
    assert pod.container["image"] == images[pod.service]
    assert pod.container["imagePullPolicy"] == "IfNotPresent", "kind loads images, and cannot pull them"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_all_three_services_are_there(overlay: str) -> None:
    assert {pod.service for pod in SERVING if pod.overlay == overlay} == set(SERVICES)


@every_pod
def test_each_variable_and_each_flag_is_known(pod: Pod) -> None:
    """A name that nobody listens to would be a setting that does nothing."""
    known = options(pod.service)
    variables = {name for option in known for name in (option.envvar if option.envvar else ())}
    variables |= {option.envvar for option in known if isinstance(option.envvar, str)}
    assert pod.variables.keys() - NOT_OURS <= variables
    flags = {word for word in pod.flags if word.startswith("--")}
    assert flags - AWAITED <= {name for option in known for name in option.opts}
    assert pod.container.get("command", ["specpair"]) in (["specpair"], ["torchrun"])


def test_no_flag_is_awaited_that_is_there() -> None:
    """Or AWAITED would hide what it is later called."""
    assert AWAITED & {name for service in SERVICES for option in options(service) for name in option.opts} == set()


@every_serving_pod
def test_the_services_take_what_they_are_told(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its configuration from the variables, as in the container, and stops before it serves."""
    served: list[Any] = []
    name = "coordinator.serve" if pod.service == "coordinator" else f"{pod.service}_service.serve"
    module = ModuleType(name)
    module.serve = lambda *configs: served.extend(configs)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    flags = pod.flags if AWAITED.isdisjoint(pod.flags) else []
    result = CliRunner().invoke(app, ["serve", pod.service, *flags], env=pod.variables)
    assert result.exit_code == 0, result.output
    config = served[-1].server if pod.service == "coordinator" else served[-1]
    assert config.host == "0.0.0.0" and config.log_format == "json"
    assert config.security.is_insecure is (pod.is_worker or pod.overlay not in SECURED_OVERLAYS)
    if pod.service == "coordinator":
        check_peers(pod, served[0])


def check_peers(pod: Pod, config: CoordinatorConfig) -> None:
    """Draft and target are found at every address of headless Services, on their gRPC ports."""
    made = of_kind(pod.overlay, "Service")
    for peer, given in (("target", config.target_addresses), ("draft", config.draft_addresses)):
        assert given == (f"dns:{peer}:{PORTS[peer]['grpc']}",)
        assert made[peer]["spec"]["clusterIP"] == "None"
    assert "coordinator" in config.http.allowed_hosts  # type: ignore[union-attr]


@every_serving_pod
def test_ports_are_those_of_the_services(pod: Pod) -> None:
    assert {port["name"]: port["containerPort"] for port in pod.container["ports"]} == PORTS[pod.service]
    made = of_kind(pod.overlay, "Service")[pod.service]["spec"]
    assert {port["name"]: port["port"] for port in made["ports"]} == PORTS[pod.service]
    assert all(port["targetPort"] == port["name"] for port in made["ports"])
    assert made["selector"].items() <= pod.labels.items()


@pytest.mark.parametrize("pod", [pod for pod in PODS if pod.is_worker], ids=str)
def test_a_worker_is_not_behind_the_service(pod: Pod) -> None:
    selector = of_kind(pod.overlay, "Service")[pod.service]["spec"]["selector"]
    assert not selector.items() <= pod.labels.items()
    assert "ports" not in pod.container and "readinessProbe" not in pod.container


@pytest.mark.parametrize("pod", [pod for pod in PODS if pod.is_worker], ids=str)
def test_all_processes_of_a_group_are_told_the_same(pod: Pod) -> None:
    """And there are as many as the model is divided into, a GPU for each."""
    (leader,) = (other for other in SERVING if (other.overlay, other.owner) == (pod.overlay, pod.owner))
    for key in ("command", "args", "env", "resources"):
        assert pod.container[key] == leader.container[key]
    options = dict(word.split("=") for word in pod.container["args"] if "=" in word)
    count = int(options["--nproc-per-node"])
    assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == str(count)
    size = of_kind(pod.overlay, "LeaderWorkerSet")[pod.owner]["spec"]["leaderWorkerTemplate"]["size"]
    assert pod.flags == ["--tensor-parallel-size", str(size * count)]
    assert options["--nnodes"] == "$(LWS_GROUP_SIZE)" and options["--node-rank"] == "$(LWS_WORKER_INDEX)"


@every_serving_pod
def test_probes_ask_what_the_services_answer(pod: Pod) -> None:
    """Without a token: kubelet has none. Whether a process lives is not asked of /health, which says no while the
    target is away."""
    models = metrics_app(CollectorRegistry(), lambda: True, Authenticator(UNPROTECTED))
    routes = router.routes if pod.service == "coordinator" else models.routes
    for probe in ("startupProbe", "readinessProbe"):
        asked = pod.container[probe]["httpGet"]
        assert asked["path"] in {getattr(route, "path", None) for route in routes} and asked["path"] in OPEN_PATHS
        assert asked["port"] == ("http" if pod.service == "coordinator" else "metrics")
        assert asked.get("scheme", "HTTP") == ("HTTPS" if pod.overlay in SECURED_OVERLAYS else "HTTP")
    assert pod.container["livenessProbe"]["tcpSocket"] == {"port": "grpc"}


@every_serving_pod
def test_pods_are_not_killed_while_they_finish_requests(pod: Pod) -> None:
    defaults = {option.name: option.default for option in options(pod.service)}
    pause = pod.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed = pause + defaults["grace_seconds"] + WATCHDOG_MARGIN_SECONDS
    assert pod.spec["terminationGracePeriodSeconds"] > needed


@pytest.mark.parametrize("pod", [pod for pod in SERVING if pod.service == "coordinator"], ids=str)
def test_requests_reach_a_coordinator_as_long_as_they_would_wait_there(pod: Pod) -> None:
    """While no target is there."""
    probe = pod.container["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= CoordinatorConfig.target_timeout
    assert pod.container["lifecycle"]["preStop"]["sleep"]["seconds"] > 0


@every_pod
def test_folders_are_those_that_the_images_write_to(pod: Pod) -> None:
    mounts = {mount["mountPath"]: mount for mount in pod.container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod.spec["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == volumes
    (home,) = re.findall(r"--home-dir (\S+)", DOCKERFILE)
    (huggingface,) = re.findall(r"HF_HOME=(\S+)", DOCKERFILE)
    assert home in mounts and (huggingface in mounts) is (pod.service != "coordinator")
    others = mounts.keys() - {home, huggingface}
    shared = {"/dev/shm"} if pod.owner == "target-group" else set()
    secrets = {"/run/specpair"} if pod.overlay in SECURED_OVERLAYS and not pod.is_worker else set()
    assert others == shared | secrets


@every_pod
def test_a_pod_can_change_nothing_and_asks_for_what_it_needs(pod: Pod) -> None:
    (user,) = re.findall(r"useradd --uid (\d+)", DOCKERFILE)
    assert pod.spec["securityContext"] == {
        **{"runAsNonRoot": True, "runAsUser": int(user), "runAsGroup": int(user), "fsGroup": int(user)},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod.container["securityContext"] == {
        **{"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod.spec["automountServiceAccountToken"] is False
    resources = pod.container["resources"]
    assert resources["requests"].keys() >= {"cpu", "memory"} and "memory" in resources["limits"]
    assert all(QUANTITY.fullmatch(text) for kind in resources.values() for text in kind.values())


@every_pod
def test_no_service_sets_our_variables(pod: Pod) -> None:
    """Kubernetes gives every container variables such as NAME_PORT=tcp://10.0.0.1:50052 for each Service. One called
    `specpair` would set --port."""
    assert pod.spec["enableServiceLinks"] is False
