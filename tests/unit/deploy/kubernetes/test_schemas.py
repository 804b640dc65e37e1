"""Every object of every overlay is one that Kubernetes, or the operator that it is for, would take."""

from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from deploy.kubernetes.prometheus_rule import OBJECT, RULES, as_yaml
from tests.unit.deploy.kubernetes.kustomize import KustomizeError, Object, name_of, render
from tests.unit.deploy.kubernetes.manifests import FOLDER, OVERLAYS, ROOT, of_kind, rendered

VERSIONS = ("1.34", "1.37")
"""The oldest in which a pause before the end is without a feature gate, and the newest that there is a schema of."""
BUILT_IN = {
    "ConfigMap",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Namespace",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Service",
}


def check_certificate(made: Object, objects: list[Object]) -> None:
    """An authority or a service's, from an issuer that is there."""
    known = {
        *("commonName", "dnsNames", "duration", "ipAddresses", "isCA", "issuerRef", "privateKey", "secretName"),
        "usages",
    }
    spec = made["spec"]
    assert made["apiVersion"] == "cert-manager.io/v1" and spec.keys() <= known
    assert spec["secretName"] and (spec.get("isCA") or spec["dnsNames"])
    assert name_of({"kind": "Issuer", "metadata": {"name": spec["issuerRef"]["name"]}}) in map(name_of, objects)


def check_issuer(made: Object, objects: list[Object]) -> None:
    """Signs itself, or by a certificate that is there."""
    assert made["apiVersion"] == "cert-manager.io/v1" and made["spec"].keys() <= {"selfSigned", "ca"}
    if "ca" in made["spec"]:
        secrets = {other["spec"]["secretName"] for other in objects if other["kind"] == "Certificate"}
        assert made["spec"]["ca"]["secretName"] in secrets


def check_service_monitor(made: Object, objects: list[Object]) -> None:
    """It selects one Service, which has the port."""
    assert made["apiVersion"] == "monitoring.coreos.com/v1"
    assert made["spec"].keys() == {"jobLabel", "selector", "endpoints"}
    wanted = made["spec"]["selector"]["matchLabels"].items()
    (service,) = (
        other for other in objects if other["kind"] == "Service" and wanted <= other["metadata"]["labels"].items()
    )
    known = {"port", "path", "interval", "honorLabels", "scheme", "tlsConfig", "authorization"}
    for endpoint in made["spec"]["endpoints"]:
        assert endpoint.keys() <= known
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def check_prometheus_rule(made: Object, objects: list[Object]) -> None:
    """The rules are those that promtool tests."""
    assert made["apiVersion"] == "monitoring.coreos.com/v1"
    assert made["spec"] == yaml.safe_load(RULES.read_text())


def check_leader_worker_set(made: Object, objects: list[Object]) -> None:
    """Both templates are pods; the Service that it makes has another name than ours."""
    assert made["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert made["spec"].keys() <= {"replicas", "startupPolicy", "leaderWorkerTemplate"}
    group = made["spec"]["leaderWorkerTemplate"]
    assert group.keys() == {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    for name in ("leaderTemplate", "workerTemplate"):
        pod = {"apiVersion": "v1", "kind": "Pod", **group[name]}
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
    assert made["metadata"]["name"] not in {o["metadata"]["name"] for o in objects if o["kind"] == "Service"}


CHECKS: dict[str, Callable[[Object, list[Object]], None]] = {
    "Certificate": check_certificate,
    "Issuer": check_issuer,
    "LeaderWorkerSet": check_leader_worker_set,
    "PrometheusRule": check_prometheus_rule,
    "ServiceMonitor": check_service_monitor,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_has_the_form_of_its_kind(overlay: str, version: str) -> None:
    for made in rendered(overlay):
        if made["kind"] in BUILT_IN:
            kubernetes_validate.validate(made, version, strict=True)
        else:
            CHECKS[made["kind"]](made, rendered(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_in_our_namespace(overlay: str) -> None:
    for made in rendered(overlay):
        if made["kind"] == "Namespace":
            assert made["metadata"]["name"] == "specpair"
            assert made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        else:
            assert made["metadata"]["namespace"] == "specpair"


def test_every_component_is_in_an_overlay() -> None:
    texts = [(FOLDER / "overlays" / name / "kustomization.yaml").read_text() for name in OVERLAYS]
    for folder in (FOLDER / "components").iterdir():
        assert any(f"../../components/{folder.name}\n" in text for text in texts), folder.name


@pytest.mark.parametrize("overlay", ["secured", "scaled", "sharded-secured"])
def test_the_dashboards_are_those_of_compose(overlay: str) -> None:
    folder = ROOT / "deploy" / "grafana" / "dashboards"
    made = of_kind(overlay, "ConfigMap")["specpair-dashboards"]
    assert made["data"] == {path.name: path.read_text() for path in folder.glob("*.json")}
    source = of_kind(overlay, "ConfigMap")["specpair-datasource"]["data"]["specpair.yaml"]
    assert all(yaml.safe_load(source)["datasources"][0]["uid"] in text for text in made["data"].values())


def test_the_file_of_rules_is_what_the_code_writes() -> None:
    assert OBJECT.read_text() == as_yaml(), "run python -m deploy.kubernetes.prometheus_rule"


BASE = """
kind: Kustomization
resources: [made.yaml]
"""
MADE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec: {replicas: 1, template: {spec: {containers: [{name: a, image: x, env: [{name: P, value: q}]}]}}}
"""


def rendered_with(folder: Path, text: str) -> Object:
    (folder / "made.yaml").write_text(MADE)
    (folder / "kustomization.yaml").write_text(BASE + text)
    (made,) = render(folder)
    return made


def test_a_merge_patch_finds_containers_and_variables_by_name(tmp_path: Path) -> None:
    patch = """patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: one}
      spec:
        replicas: 3
        template: {spec: {containers: [{name: a, env: [{name: P, $patch: delete}, {name: R, value: s}]}, {name: b}]}}
"""
    spec = rendered_with(tmp_path, patch)["spec"]
    first, second = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 3
    assert first == {"name": "a", "image": "x", "env": [{"name": "R", "value": "s"}]} and second == {"name": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "generators: [x]",
        "resources: [../../made.yaml]",
        "patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: two}}'}]",
        "patches: [{target: {kind: Deployment}, patch: '[{op: remove, path: /spec/strategy}]'}]",
        "patches: [{target: {kind: Deployment}, patch: '[{op: test, path: /spec/replicas, value: 2}]'}]",
        "configMapGenerator: [{name: some, files: [made.yaml], options: {}}]",
        "components: [.]",
    ],
)
def test_what_kustomize_refuses_or_is_not_rendered_is_an_error(text: str, tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "made.yaml").write_text(MADE)
    with pytest.raises(KustomizeError):
        rendered_with(inner, text)
