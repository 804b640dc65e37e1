"""Autoscalers ask for metrics that the adapter makes of metrics that we have."""

import re
from typing import Any

import pytest
import yaml

from tests.unit.deploy.kubernetes.manifests import FOLDER, ROOT, SERVICES, of_kind

AUTOSCALERS = of_kind("scaled", "HorizontalPodAutoscaler")
ADAPTER = yaml.safe_load((FOLDER / "components" / "autoscaling" / "adapter-values.yaml").read_text())
RULES = {rule["name"]["as"]: rule for rule in ADAPTER["rules"]["custom"]}
PARTS = {"C": ("",), "G": ("",), "H": ("_bucket", "_sum", "_count")}
OF_TARGETS = {"job", "instance", "namespace", "service", "pod", "container", "endpoint"}
"""Labels that the Prometheus operator gives to all that it scrapes."""


def sections() -> dict[str, set[str]]:
    """The series of docs/metrics.md by the heading that they are under; a test holds it to what is exported."""
    found: dict[str, set[str]] = {}
    for part in (ROOT / "docs" / "metrics.md").read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| `(\w+)` \| ([CGH]) \|", part, re.MULTILINE)
        found[part.partition("\n")[0]] = {name + end for name, kind in rows for end in PARTS[kind]}
    return found


def labels_of() -> dict[str, set[str]]:
    """The labels of each metric, by the same tables."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [CGH] \|([\w, ]*)\|", text, re.MULTILINE)
    return {name: set(re.findall(r"\w+", labels)) for name, labels in rows}


SERIES = sections()
OF = {"coordinator": SERIES["Coordinator"], "draft": SERIES["Draft and target"], "target": SERIES["Draft and target"]}


def asked(name: str) -> list[dict[str, Any]]:
    """What an autoscaler asks of the adapter: the metric and whose it is."""
    metrics = AUTOSCALERS[name]["spec"]["metrics"]
    assert {metric["type"] for metric in metrics} <= {"Object", "Pods", "Resource"}
    return [metric[metric["type"].lower()] for metric in metrics if metric["type"] != "Resource"]


@pytest.mark.parametrize("name", SERVICES)
def test_it_scales_a_deployment_that_leaves_its_size_to_it(name: str) -> None:
    spec = AUTOSCALERS[name]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert "replicas" not in of_kind("scaled", "Deployment")[name]["spec"]
    assert 1 <= spec["minReplicas"] < spec["maxReplicas"]
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300


@pytest.mark.parametrize("name", SERVICES)
def test_its_metrics_are_made_by_the_adapter_from_ours(name: str) -> None:
    assert asked(name)
    for metric in asked(name):
        rule = RULES[metric["metric"]["name"]]
        series, _, labels = rule["seriesQuery"].rstrip("}").partition("{")
        owner = metric.get("describedObject", {"kind": "Pod", "name": name})
        assert series in OF[owner["name"]]
        assert f'{owner["kind"].lower()}!=""' in labels and owner["kind"].lower() in rule["resources"]["overrides"]
        if owner["kind"] == "Service":
            assert owner["name"] in of_kind("scaled", "Service")


def test_every_rule_of_the_adapter_is_asked_for() -> None:
    assert RULES.keys() == {metric["metric"]["name"] for name in SERVICES for metric in asked(name)}


def test_queries_of_dashboards_and_rules_find_their_jobs() -> None:
    """They name jobs `coordinator`, `draft` and `target`: the component of each Service is its job."""
    for name, monitor in of_kind("scaled", "ServiceMonitor").items():
        label = monitor["spec"]["jobLabel"]
        assert of_kind("scaled", "Service")[name]["metadata"]["labels"][label] == name
    rules = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
    assert set(re.findall(r'job="(\w+)"', rules)) == set(SERVICES)


def test_series_of_the_rules_are_ours() -> None:
    named = set(re.findall(r"\bspecpair_\w+", (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()))
    recorded = {"specpair_cache_blocks_used", "specpair_acceptance"}
    assert named - recorded <= set().union(*SERIES.values())


@pytest.mark.parametrize("overlay", ["scaled", "secured", "sharded-secured"])
@pytest.mark.parametrize("name", SERVICES)
def test_our_labels_keep_their_names_beside_those_of_the_operator(name: str, overlay: str) -> None:
    """Else `service` of draft and target would be exported_service, and the alerts would say "coordinator" of both."""
    (endpoint,) = of_kind(overlay, "ServiceMonitor")[name]["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_no_label_of_ours_but_service_hides_one_of_the_operator() -> None:
    """And those of the adapter's metrics hide none: it looks for the objects that they belong to."""
    hiding = {name: labels & OF_TARGETS for name, labels in labels_of().items()}
    assert set().union(*hiding.values()) == {"service"}
    asked = {rule["seriesQuery"].partition("{")[0] for rule in RULES.values()}
    assert all(not hiding[re.sub(r"_(bucket|sum|count)$", "", name)] for name in asked)
