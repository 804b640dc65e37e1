"""The bench for GPUs runs, on a CPU with a tiny shape; its figures mean nothing there."""

import json
import sys

import pytest
import torch

from bench.gpu import __main__ as gpu
from bench.gpu import chains, goals, pair
from bench.gpu.setting import BATCHES, VERIFIED, Clock
from bench.gpu.vllm_peer import read_rates
from bench.random_models import SHAPES
from bench.ratios import Estimate


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.gpu", *arguments])
    gpu.main()


@pytest.mark.few_cases()
def test_a_trial_on_a_cpu_fills_all_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--expand", "tiny", "--device", "cpu", "--dtype", "float32", "--context", "24"]
    run(monkeypatch, *options, "--tokens", "8", "--quick")
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(row["batch"], row["rows"]) for row in figures["passes"]] == [
        (batch, rows) for batch in BATCHES for rows in VERIFIED
    ]
    assert all(row["captured"] > 0 and row["plain"] > 0 for row in figures["passes"])
    assert [row["batch"] for row in figures["decoding"]] == list(BATCHES)
    assert [(row["batch"], row["drawn"]) for row in figures["chains"]] == [
        (b, way) for b in BATCHES for way in chains.WAYS
    ]
    assert {(row["temperature"], row["batch"]) for row in figures["pair"]} == {
        (temperature, batch) for temperature in pair.TEMPERATURES for batch in BATCHES
    }
    assert all(row["ratio"]["value"] > 0 for row in figures["pair"])
    assert [goal["figure"] for goal in figures["goals"]] == [goal.figure for goal in goals.GOALS]
    assert all(goal["is_met"] in ("yes", "no") for goal in figures["goals"])
    shape = SHAPES["tiny"]
    attention = 2 * shape.hidden * shape.hidden * (1 + shape.key_heads / shape.heads)
    layer = attention + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    assert figures["weight_bytes"] == 4 * (shape.layers * layer + shape.hidden * (shape.vocabulary + 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_how_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="--expand tiny --device cpu"):
        run(monkeypatch)


def test_help_names_the_shapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(monkeypatch, "--help")
    shown = capsys.readouterr().out
    assert all(name in shown for name in SHAPES)


def test_goals_are_met_on_their_side_of_the_bound() -> None:
    figures = {
        "passes": [{"batch": 1, "rows": 5, "ratio": 1.31}],
        "chains": [{"batch": 1, "drawn": "block, T=1", "step_ms": 0.4}],
        "decoding": [{"batch": 1, "specpair": 99.0, "static": 100.0}],
        "pair": [{"batch": 1, "temperature": 0.0, "ratio": Estimate(value=1.5, low=1.4, high=1.6)}],
    }
    assert [row["is_met"] for row in goals.reached(figures)] == ["no", "yes", "yes", "no"]
    assert [row["is_met"] for row in goals.reached({"passes": figures["passes"]})] == ["no", None, None, None]


def test_what_there_is_no_time_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert Clock(100.0).allows("the pair", 50.0) and not Clock(10.0).allows("the pair", 50.0)
    assert "no time is left for the pair" in capsys.readouterr().out


def test_vllm_may_print_its_log_before_and_after_its_figures() -> None:
    log = "(EngineCore pid=7) INFO 12-01 05:34:29 [multiproc_executor.py:486] all workers exited"
    assert read_rates(f'{log}\n{{"1": 24.5, "4": 69.0}}\n{log}\n') == {1: 24.5, 4: 69.0}
    assert read_rates(log) == "vLLM printed no figures"
