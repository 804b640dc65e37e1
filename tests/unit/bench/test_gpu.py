"""The bench for GPUs runs, on a CPU with a tiny shape; its figures mean nothing there."""

import json
import sys

import pytest
import torch

from bench import gpu
from bench.random_models import SHAPES


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.gpu", *arguments])
    gpu.main()


def test_a_trial_on_a_cpu_fills_both_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--expand", "tiny", "--device", "cpu", "--dtype", "float32", "--context", "24"]
    run(monkeypatch, *options, "--tokens", "3", "--repetitions", "2")
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(row["batch"], row["rows"]) for row in figures["passes"]] == [
        (batch, rows) for batch in gpu.BATCHES for rows in gpu.VERIFIED
    ]
    assert all(row["captured"] > 0 and row["plain"] > 0 for row in figures["passes"])
    assert [row["batch"] for row in figures["decoding"]] == list(gpu.BATCHES)
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
