"""The dashboards' files are what the code writes, and every query of theirs gives data about a pair under load."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.grafana.dashboards import DASHBOARDS, FOLDER, as_json
from deploy.grafana.panels import ALL_NAMESPACES, DATASOURCE, NAMESPACE
from tests.service.prometheus_pair import PrometheusPair, running_prometheus_pair, wait_for
from tests.service.test_metrics import DOCUMENTATION, ROW

PROMPT = "def read_lines(path):\n"
RATE_INTERVAL = "30s"
ROUNDS_OF_LOAD = 3
LONG = 12
"""Tokens of proposals whose positions have two digits."""
MIX: tuple[dict[str, Any], ...] = (
    {"num_speculative_tokens": 4},
    {"num_speculative_tokens": 4, "rule": "token"},
    {"num_speculative_tokens": 3, "rule": "coupled", "work_ahead": "on"},
    {"num_speculative_tokens": 3, "drafter": "ngram"},
    {"num_speculative_tokens": 3, "num_tree_tokens": 8},
    {"num_speculative_tokens": 3, "merge": "tree"},
    {"num_speculative_tokens": LONG},
    {"num_speculative_tokens": 0},
    {},
)
"""Options of the requests: several rules and drafters, none, and what the coordinator chooses."""


def panels(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.json").read_text())["panels"]


QUERIES = [
    pytest.param(target["expr"], id=f"{name}: {panel['title']}, {panel['type']} {target['refId']}")
    for name in DASHBOARDS
    for panel in panels(name)
    for target in panel.get("targets", ())
]


NOT_SHOWN = {
    *("specpair_build_info", "specpair_model_info", "specpair_model_ranks"),  # facts, not figures
    *("specpair_instance_up", "specpair_target_up", "specpair_device_silence_seconds"),  # alerts of deploy/prometheus
    *("specpair_vocabulary_translations", "specpair_vocabulary_overlap"),  # `specpair info` shows them
    *("specpair_structured_outputs_total", "specpair_target_masked_rows_total", "specpair_target_mask_seconds_total"),
    *("specpair_model_encoded_inputs_total", "specpair_graph_misses_total"),
    *("specpair_chain_misses_total", "specpair_forced_tokens_total"),
    *("specpair_shadow_tokens_total", "specpair_shadow_accepted_tokens_total"),
    *("specpair_draft_ahead_branches", "specpair_target_conditional_calls_total", "specpair_streams_open"),
    "specpair_target_late_distributions_total",
    *("grpc_server_started_total", "grpc_server_msg_received_total", "grpc_server_msg_sent_total"),
}
"""Exported, and on no dashboard: what is an alert or a fact, and what only a look into one mechanism needs."""


def test_every_metric_is_on_a_dashboard_or_left_out_by_name() -> None:
    documented = {name for name, _, _ in ROW.findall(DOCUMENTATION.read_text())}
    queries = "\n".join(
        target["expr"] for name in DASHBOARDS for panel in panels(name) for target in panel.get("targets", ())
    )
    shown = {name for name in documented if re.search(rf"\b{name}(_bucket|_sum|_count)?\b", queries)}
    assert documented - shown == NOT_SHOWN


@pytest.mark.parametrize("name", DASHBOARDS)
def test_file_is_what_the_code_writes(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text()
    assert text == as_json(name), "run python -m deploy.grafana.dashboards"


def test_no_other_files_are_provisioned() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(DASHBOARDS)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_ask_the_provisioned_source(name: str) -> None:
    sources = (FOLDER.parent / "provisioning" / "datasources" / "prometheus.yml").read_text()
    assert f"uid: {DATASOURCE.uid}" in sources
    uids = {panel["datasource"]["uid"] for panel in panels(name) if panel["type"] != "row"}
    assert uids == {DATASOURCE.uid}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    places = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
        for panel in panels(name)
        for column in range(panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert max(column for column, _ in places) < 24


def test_lines_of_several_instances_can_be_told_apart() -> None:
    """Each instance has a series of its own of what is not added up."""
    lines = [
        (target["expr"], target["legendFormat"])
        for name in DASHBOARDS
        for panel in panels(name)
        if panel["type"] == "timeseries"
        for target in panel["targets"]
    ]
    of_each = [(expr, legend) for expr, legend in lines if re.fullmatch(r"\w+({.*})?", expr)]
    assert len(of_each) >= 7
    assert not [expr for expr, legend in of_each if "{{instance}}" not in legend]


def filled_in(expr: str, *, interval: str = RATE_INTERVAL, namespace: str = ALL_NAMESPACES) -> str:
    """The query as Grafana sends it."""
    expr = expr.replace("$__rate_interval", interval).replace(f"${NAMESPACE}", namespace)
    assert "$" not in expr
    return expr


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusPair]:
    """After a load that has some of everything."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with running_prometheus_pair(folder) as pair:
        for count in range(1, ROUNDS_OF_LOAD + 1):  # several, since a rate wants two scrapes
            put_load(pair)
            finished = f'sum(specpair_requests_total{{outcome="finished"}}) == {count * len(MIX)}'
            wait_for(lambda expr=finished: pair.query(expr))
        yield pair


def put_load(pair: PrometheusPair) -> None:
    """A request of each kind, and one that is refused."""
    url = f"{pair.coordinator}/v1/completions"
    model = httpx.get(f"{pair.coordinator}/v1/models").json()["data"][0]["id"]
    usual = {"model": model, "prompt": PROMPT, "max_tokens": 32, "ignore_eos": True, "temperature": 0.5}
    for options in MIX:
        answer = httpx.post(url, json={**usual, **options}, timeout=60)
        assert answer.status_code == 200, answer.text
    assert httpx.post(url, json={**usual, "temperature": -1}, timeout=60).status_code == 400


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("expr", QUERIES)
def test_query_gives_data(pair: PrometheusPair, expr: str) -> None:
    """Real numbers in the last half minute, for every panel."""
    expr = filled_in(expr)
    values = [float(value) for series in pair.query_range(expr, seconds=15) for _, value in series["values"]]
    assert any(math.isfinite(value) for value in values), f"no data: {expr}"


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("expr", QUERIES)
def test_query_gives_no_data_of_a_namespace_that_is_not_chosen(pair: PrometheusPair, expr: str) -> None:
    """No metric of a query is without the condition."""
    assert not pair.query_range(filled_in(expr, namespace="elsewhere"), seconds=15)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_all_namespaces_are_shown_unless_some_are_chosen(name: str) -> None:
    """Also where series have no namespace: an expression for all those that are known would leave them out."""
    dashboard = json.loads((FOLDER / f"{name}.json").read_text())
    (variable,) = dashboard["templating"]["list"]
    assert (variable["name"], variable["includeAll"], variable["multi"]) == (NAMESPACE, True, True)
    assert variable["current"]["value"] == ["$__all"]
    assert variable["allValue"] == ALL_NAMESPACES and re.fullmatch(ALL_NAMESPACES, "")
    assert all(link["includeVars"] for link in dashboard["links"])


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("title", ["Acceptance by position", "Acceptance by position over time"])
def test_positions_are_in_the_order_of_numbers(pair: PrometheusPair, title: str) -> None:
    """Grafana shows series in the order of Prometheus, which is that of text: 10 would be before 2."""
    (panel,) = (panel for panel in panels("acceptance") if panel["title"] == title)
    expr = filled_in(panel["targets"][0]["expr"], interval="2m")
    found = [int(series["metric"]["position"]) for series in pair.query_range(expr, seconds=15)]
    assert found == list(range(len(found))) and len(found) >= LONG


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(240)
def test_rules_are_healthy_and_nothing_is_alarming(pair: PrometheusPair) -> None:
    groups = httpx.get(f"{pair.prometheus}/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    alarming = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert not alarming
    recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert [name for name in recorded if not pair.query(f'{{__name__="{name}"}}')] == []
