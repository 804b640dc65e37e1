"""`specpair top`: from what Prometheus endpoints say to figures and tables."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console
from typer.testing import CliRunner

from command.failures import CommandError
from command.main import app
from command.top.exposition import Exposition
from command.top.figures import model_figures, state, traffic, uptime
from command.top.scrape import Endpoint, Scrape
from command.top.top import ask_all, view
from command.top.view import ModelColumn, model_table, state_line, traffic_table

COORDINATOR = """\
# HELP specpair_spec_decode_num_draft_tokens_total Proposed tokens.
# TYPE specpair_spec_decode_num_draft_tokens_total counter
specpair_spec_decode_num_draft_tokens_total{drafter="model",rule="block"} 60.0
specpair_spec_decode_num_draft_tokens_total{drafter="ngram",rule="token"} 40.0
# TYPE specpair_spec_decode_num_accepted_tokens_total counter
specpair_spec_decode_num_accepted_tokens_total{drafter="model",rule="block"} 45.0
specpair_spec_decode_num_accepted_tokens_total{drafter="ngram",rule="token"} 10.0
# TYPE specpair_spec_decode_num_draft_tokens_per_pos_total counter
specpair_spec_decode_num_draft_tokens_per_pos_total{position="0"} 40.0
specpair_spec_decode_num_draft_tokens_per_pos_total{position="10"} 20.0
specpair_spec_decode_num_draft_tokens_per_pos_total{position="2"} 40.0
# TYPE specpair_spec_decode_num_accepted_tokens_per_pos_total counter
specpair_spec_decode_num_accepted_tokens_per_pos_total{position="0"} 30.0
specpair_spec_decode_num_accepted_tokens_per_pos_total{position="2"} 20.0
# TYPE specpair_spec_decode_rounds_total counter
specpair_spec_decode_rounds_total{kind="draft"} 40.0
specpair_spec_decode_rounds_total{kind="plain"} 10.0
specpair_spec_decode_rounds_total{kind="fallback"} 5.0
# TYPE specpair_ahead_rounds_total counter
specpair_ahead_rounds_total{accepted="0",outcome="hit"} 12.0
specpair_ahead_rounds_total{accepted="8+",outcome="hit"} 8.0
specpair_ahead_rounds_total{accepted="0",outcome="miss"} 5.0
# TYPE specpair_requests_total counter
specpair_requests_total{outcome="finished"} 8.0
specpair_requests_total{outcome="cancelled"} 2.0
# TYPE specpair_generation_tokens_total counter
specpair_generation_tokens_total 120.0
# TYPE specpair_prompt_tokens_total counter
specpair_prompt_tokens_total 50.0
# TYPE specpair_num_requests_running gauge
specpair_num_requests_running 3.0
# TYPE specpair_draft_up gauge
specpair_draft_up 0.0
# TYPE specpair_target_up gauge
specpair_target_up 1.0
# TYPE specpair_speculation_speedup_ratio gauge
specpair_speculation_speedup_ratio NaN
# TYPE specpair_speculation_break_even_acceptance gauge
specpair_speculation_break_even_acceptance 0.35
# TYPE specpair_speculation_best_num_tokens gauge
specpair_speculation_best_num_tokens 3.0
# TYPE specpair_speculation_expected_gain_ratio gauge
specpair_speculation_expected_gain_ratio 1.4
# TYPE specpair_speculation_predicted_speedup_ratio gauge
specpair_speculation_predicted_speedup_ratio 1.5
# TYPE specpair_time_to_first_token_seconds histogram
specpair_time_to_first_token_seconds_bucket{le="0.1"} 4.0
specpair_time_to_first_token_seconds_bucket{le="0.2"} 8.0
specpair_time_to_first_token_seconds_bucket{le="+Inf"} 10.0
specpair_time_to_first_token_seconds_count 10.0
specpair_time_to_first_token_seconds_sum 1.5
# TYPE specpair_inter_token_latency_seconds histogram
specpair_inter_token_latency_seconds_bucket{le="+Inf"} 110.0
specpair_inter_token_latency_seconds_count 110.0
specpair_inter_token_latency_seconds_sum 2.2
# TYPE specpair_round_time_seconds histogram
specpair_round_time_seconds_bucket{le="+Inf",part="draft"} 40.0
specpair_round_time_seconds_count{part="draft"} 40.0
specpair_round_time_seconds_sum{part="draft"} 0.2
specpair_round_time_seconds_bucket{le="+Inf",part="verify"} 50.0
specpair_round_time_seconds_count{part="verify"} 50.0
specpair_round_time_seconds_sum{part="verify"} 0.5
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1000.0
"""
TARGET = """\
# TYPE specpair_cache_blocks gauge
specpair_cache_blocks{state="used"} 12.0
specpair_cache_blocks{state="free"} 80.0
specpair_cache_blocks{state="shared"} 4.0
specpair_cache_blocks{state="kept"} 8.0
# TYPE specpair_cache_evictions_total counter
specpair_cache_evictions_total 3.0
# TYPE specpair_sequences_open gauge
specpair_sequences_open 2.0
# TYPE specpair_model_batch_sequences histogram
specpair_model_batch_sequences_bucket{le="+Inf"} 10.0
specpair_model_batch_sequences_count 10.0
specpair_model_batch_sequences_sum 15.0
# TYPE specpair_model_tokens_total counter
specpair_model_tokens_total{kind="prefill"} 30.0
specpair_model_tokens_total{kind="decode"} 70.0
"""
SAID = Exposition.parse(COORDINATOR)


def test_traffic_is_what_the_counters_say() -> None:
    figures = traffic(SAID, 10.0)
    assert figures.acceptance_rate == 0.55
    assert figures.tokens_per_round == 1 + 55 / 55
    assert figures.rounds_by_kind == {"draft": 40, "plain": 10, "fallback": 5}
    assert figures.ahead_by_outcome == {"hit": 20, "miss": 5}
    assert figures.requests_by_outcome == {"finished": 8, "cancelled": 2}
    assert (figures.tokens_per_second, figures.prompt_tokens_per_second) == (12.0, 5.0)
    assert figures.round_times == {"draft": 0.005, "verify": 0.01, "network": None, "rollback": None}


def test_positions_are_in_the_order_of_numbers() -> None:
    assert traffic(SAID, 10.0).acceptance_by_position == (0.75, 0.5, 0.0)


def test_quantiles_are_those_of_prometheus() -> None:
    name = "specpair_time_to_first_token_seconds"
    assert SAID.quantile(name, 0.5) == pytest.approx(0.125)  # histogram_quantile: 0.1 + 0.1 * (5 - 4) / (8 - 4)
    assert SAID.quantile(name, 0.2) == pytest.approx(0.05)
    assert SAID.quantile(name, 0.95) == 0.2, "beyond the highest bound nothing is known"
    assert SAID.quantile("specpair_e2e_request_latency_seconds", 0.5) is None


def test_the_state_knows_up_down_and_unknown() -> None:
    figures = state(SAID)
    assert figures.is_up == {"draft": False, "target": True} and figures.requests_running == 3
    assert (figures.speedup, figures.predicted_speedup) == (None, 1.5)
    assert state(Exposition({})).is_up == {"draft": None, "target": None}


def test_an_acceptance_that_none_can_have_is_not_shown() -> None:
    said = Exposition.parse(COORDINATOR.replace("break_even_acceptance 0.35", "break_even_acceptance 8.846"))
    console = Console(width=100, record=True)
    console.print(traffic_table(state(said), [traffic(said, 10.0)]))
    assert "acceptance that pays none" in " ".join(console.export_text().split())


def test_of_several_instances_those_that_are_up_are_counted() -> None:
    text = "# TYPE specpair_instance_up gauge\n" + "".join(
        f'specpair_instance_up{{service="{service}",address="{address}"}} {up}\n'
        for service, address, up in (("target", "a:1", 1), ("target", "b:1", 0), ("draft", "a:2", 1))
    )
    assert state_line(state(Exposition.parse(text))).plain == "draft unknown · target 1 of 2 up · 0 requests running"


def test_a_model_service() -> None:
    said = Exposition.parse(TARGET)
    figures = model_figures(said, said, 10.0)
    assert figures.blocks == {"used": 12, "shared": 4, "kept": 8, "free": 80}
    assert (figures.evictions, figures.sequences_open, figures.tokens_per_second) == (3, 2, 10.0)
    assert (figures.batch_sequences, figures.queue_seconds) == (1.5, None)


def test_guesses_are_shown_where_a_draft_is_accelerated() -> None:
    guesses = "".join(
        f"# TYPE specpair_draft_{name} counter\nspecpair_draft_{name}_total {count}\n"
        for name, count in (("guessed_tokens", 40.0), ("accepted_guesses", 30.0))
    )
    console = Console(width=100, record=True)
    for text in (TARGET, TARGET + guesses):
        said = Exposition.parse(text)
        console.print(*model_table([ModelColumn("draft", model_figures(said, said, 10.0), None)]))
    without, shown = " ".join(console.export_text().split()).split("metrics")[1:]
    assert "guessed" not in without and "tokens guessed (right) 40 (30)" in shown


def test_a_stretch_of_time_is_what_was_added() -> None:
    later = Exposition.parse(COORDINATOR.replace("generation_tokens_total 120.0", "generation_tokens_total 150.0"))
    assert later.since(SAID).total("specpair_generation_tokens_total") == 30
    assert traffic(later.since(SAID), 10.0).acceptance_rate is None
    restarted = Exposition.parse("specpair_generation_tokens_total 20.0\n")
    assert restarted.since(SAID).total("specpair_generation_tokens_total") == 20


def test_the_time_since_the_start() -> None:
    assert uptime(SAID, 1060.0) == 60.0
    assert uptime(Exposition({}), 1060.0) == 1.0


def test_an_endpoint_remembers_its_window() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/metrics", window=10.0)
    for clock in (0.0, 6.0, 12.0):
        endpoint.add(Scrape(clock, SAID))
    assert endpoint.earliest is not None and endpoint.earliest.clock == 6.0
    assert endpoint.latest is not None and endpoint.latest.clock == 12.0


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", "ftp://host/metrics"])
def test_a_url_is_http(url: str) -> None:
    with pytest.raises(CommandError, match="is not a URL"):
        Endpoint(url, 10.0)


@contextmanager
def answering(body: str) -> Iterator[str]:
    """A web server that says the same to everybody; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["top", *arguments], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, result.stderr


def test_once_prints_one_table() -> None:
    with answering(COORDINATOR) as metrics, answering(TARGET) as target:
        flags = ["--metrics", metrics, "--target-metrics", target, "--draft-metrics", "http://127.0.0.1:1/metrics"]
        status, out, _ = run("--once", *flags)
    assert status == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "draft down · target up · 3 requests running",
        "acceptance rate 55.0%",
        "rounds draft / plain / fallback 40 / 10 / 5",
        "first token, median / 95 % 125.0 ms / 200.0 ms",
        "speedup, measured (predicted) - (1.50)",
        "acceptance that pays 35.0%",
        "best K now (expected gain) 3 (1.40)",
        "metrics not reached ok",
        "cache used / shared / kept / free - 12 / 4 / 8 / 80",
    ):
        assert line in lines, out
    assert any(line.startswith("1 75.0% █") for line in lines)


def test_nobody_there_is_one_line() -> None:
    status, out, err = run("--once", "--metrics", "http://127.0.0.1:1/metrics")
    assert (status, out) == (1, "")
    problem = "http://127.0.0.1:1/metrics: not reached"
    assert err == f"specpair: {problem}; `specpair up` starts a coordinator, --metrics says where one is\n"


def test_what_is_no_exposition_is_one_line() -> None:
    with answering("<html>") as url:
        status, _, err = run("--once", "--metrics", url)
    assert status == 1 and err.startswith(f"specpair: {url}: no metrics there")


async def test_the_last_figures_stay_when_the_coordinator_goes_away() -> None:
    with answering(COORDINATOR) as url:
        coordinator = Endpoint(url, 10.0)
        await ask_all(coordinator, {})
        await ask_all(coordinator, {})
    console = Console(width=100)
    with console.capture() as before:
        console.print(view(coordinator, {}))
    assert "last 0 s" in before.get() and "since start" in before.get()
    await ask_all(coordinator, {})
    with console.capture() as after:
        console.print(view(coordinator, {}))
    assert "not reached; these are its last figures" in after.get() and "acceptance rate" in after.get()
