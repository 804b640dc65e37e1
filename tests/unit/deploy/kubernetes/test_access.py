"""Who reaches whom: policies, budgets, certificates, secrets."""

from collections.abc import Iterator
from typing import Any

import pytest

from command.flags.shared import DEFAULT_ADDRESS
from tests.compose.engine import SECURED
from tests.compose.test_files import services
from tests.unit.deploy.kubernetes.manifests import OVERLAYS, SECURED_OVERLAYS, SERVICES, SERVING, Pod, of_kind
from tests.unit.deploy.kubernetes.test_services import PORTS

NAME = "models.specpair"
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
secured_pods = pytest.mark.parametrize("pod", [pod for pod in SERVING if pod.overlay in SECURED_OVERLAYS], ids=str)


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """As Kubernetes compares labels; an empty selector takes all."""
    rules = selector.get("matchExpressions", ())
    assert all(rule["operator"] == "In" for rule in rules)
    wanted = selector.get("matchLabels", {}).items()
    return wanted <= labels.items() and all(labels.get(rule["key"]) in rule["values"] for rule in rules)


def admitted(pod: Pod, direction: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Peers and ports that the policies let in or out of a pod."""
    key = {"ingress": "from", "egress": "to"}[direction]
    for policy in of_kind(pod.overlay, "NetworkPolicy").values():
        if selects(policy["spec"]["podSelector"], pod.labels):
            for rule in policy["spec"].get(direction, ()):
                for peer in rule.get(key, [{}]):
                    yield from ((peer, port["port"]) for port in rule.get("ports", [{"port": 0}]))


def reaches(source: Pod, goal: Pod, port: int) -> bool:
    """Whether both sides' policies let a call through. Rules for other namespaces do not count."""
    out = any(number == port and in_namespace(peer, goal) for peer, number in admitted(source, "egress"))
    into = any(number == port and in_namespace(peer, source) for peer, number in admitted(goal, "ingress"))
    return out and into


def in_namespace(peer: dict[str, Any], pod: Pod) -> bool:
    return peer == {} or ("podSelector" in peer and selects(peer["podSelector"], pod.labels))


@every_overlay
def test_nothing_goes_in_or_out_by_itself(overlay: str) -> None:
    spec = of_kind(overlay, "NetworkPolicy")["nothing-else"]["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@every_overlay
def test_the_coordinator_alone_reaches_the_models_and_they_reach_nobody(overlay: str) -> None:
    by_name = {pod.service: pod for pod in SERVING if pod.overlay == overlay}
    open_pairs = {
        (source, goal, port)
        for source in SERVICES
        for goal in SERVICES
        for port in PORTS[goal].values()
        if source != goal and reaches(by_name[source], by_name[goal], port)
    }
    assert open_pairs == {("coordinator", peer, PORTS[peer]["grpc"]) for peer in ("draft", "target")}


@pytest.mark.parametrize("pod", SERVING, ids=str)
def test_clients_and_prometheus_come_in(pod: Pod) -> None:
    peers = [(peer, port) for peer, port in admitted(pod, "ingress") if "podSelector" not in peer]
    if pod.service == "coordinator":
        assert sorted(port for peer, port in peers if peer == {}) == sorted(PORTS["coordinator"].values())
    else:
        (only,) = peers
        namespace = only[0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        assert namespace == "monitoring" and only[1] == PORTS[pod.service]["metrics"]


@pytest.mark.parametrize("pod", SERVING, ids=str)
def test_only_what_downloads_models_leaves_the_cluster(pod: Pod) -> None:
    out = {port for peer, port in admitted(pod, "egress") if "ipBlock" in peer}
    assert out == ({443} if "HF_TOKEN" in pod.variables else set())
    assert ("SPECPAIR_MODEL" in pod.variables) is ("HF_TOKEN" in pod.variables)


@pytest.mark.parametrize("pod", SERVING, ids=str)
def test_every_service_has_a_budget(pod: Pod) -> None:
    """One that lets nodes be emptied, also where there is one instance."""
    budgets = of_kind(pod.overlay, "PodDisruptionBudget")
    (mine,) = (made for made in budgets.values() if selects(made["spec"]["selector"], pod.labels))
    assert mine["spec"]["maxUnavailable"] == 1


@secured_pods
def test_paths_are_those_of_compose_and_every_file_is_mounted(pod: Pod) -> None:
    """With the name of the peers besides, since `dns:` leads to addresses."""
    environment = services(SECURED)[pod.service]["environment"]
    composed = {name: value for name, value in environment.items() if name != "SPECPAIR_INSECURE"}
    ours = {name: value for name, value in pod.variables.items() if name.startswith("SPECPAIR_")}
    given = {name: value for name, value in ours.items() if "TLS" in name or "TOKEN" in name}
    assert given.pop("SPECPAIR_PEER_TLS_NAME", NAME) == NAME
    assert given == composed
    (volume,) = (volume for volume in pod.spec["volumes"] if volume["name"] == "specpair")
    items = {item["path"] for source in volume["projected"]["sources"] for item in source["secret"]["items"]}
    assert {f"/run/specpair/{item}" for item in items} >= set(given.values())
    assert volume["projected"]["defaultMode"] == 0o440, "readable by our group, which fsGroup is"


@secured_pods
def test_certificates_have_the_names_by_which_the_services_are_called(pod: Pod) -> None:
    certificate = of_kind(pod.overlay, "Certificate")[pod.service]["spec"]
    (volume,) = (volume for volume in pod.spec["volumes"] if volume["name"] == "specpair")
    assert volume["projected"]["sources"][0]["secret"]["name"] == certificate["secretName"]
    monitor = of_kind(pod.overlay, "ServiceMonitor")[pod.service]["spec"]["endpoints"][0]
    assert monitor["scheme"] == "https"
    assert monitor["tlsConfig"]["ca"]["secret"] == {"name": certificate["secretName"], "key": "ca.crt"}
    assert monitor["tlsConfig"]["serverName"] in certificate["dnsNames"]
    assert monitor["authorization"] == {"credentials": {"name": "prometheus-token", "key": "token"}}
    assert (NAME in certificate["dnsNames"]) is (pod.service != "coordinator")
    if pod.service == "coordinator":
        assert set(pod.variables["SPECPAIR_HTTP_ALLOWED_HOSTS"].split(",")) <= set(certificate["dnsNames"])


@secured_pods
def test_certificates_have_the_names_of_a_port_that_is_forwarded(pod: Pod) -> None:
    """Where the command line looks for a coordinator by itself, and what else this machine is called."""
    certificate = of_kind(pod.overlay, "Certificate")[pod.service]["spec"]
    assert certificate["ipAddresses"] == [DEFAULT_ADDRESS.partition(":")[0]]
    assert "localhost" in certificate["dnsNames"]
