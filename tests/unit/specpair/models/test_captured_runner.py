"""The runner of captured passes, on CPU tensors: the same plans, buckets, padding rows and buffers as on a GPU, with a
stand-in for the graphs that also overwrites what it returned before."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.caches.holding import Segment
from specpair.errors import ModelRefusedError
from specpair.models.batch import Batch
from specpair.models.capture import EagerCapture, Work
from specpair.models.captured_buckets import FEWEST_KEYS, ROWS, key_bucket, row_bucket
from specpair.models.captured_runner import CapturedRunner
from specpair.models.graph_miss import GraphMiss
from specpair.models.load_runner import load_runner
from specpair.models.runner import Runner
from specpair.models.self_check import run_chunks
from tests.services import engine_config
from tests.tiny_models import make_model
from tests.unit.specpair.models.test_aligned_runner import among_others, at_once, one_by_one, random_ids, with_rollbacks

KINDS = ("llama", "mistral", "qwen2", "qwen3")
TOLERANCE = 1e-4


def load(folder: Path, runner: str = "captured", **changes: Any) -> Any:
    values: dict[str, Any] = {"runner": runner, "cache": "paged", "num_blocks": 64, **changes}
    return load_runner(engine_config(folder, **values))[1]


def random_passes(runner: Runner, seed: int, most_rows: int) -> list[Tensor]:
    """The logits of passes of several sequences, with rollbacks, forks and sequences that end in between."""
    draw = random.Random(seed)
    cache = runner.cache
    holdings = [cache.open([]) for _ in range(3)]
    logits: list[Tensor] = []
    for step in range(14):
        chunks = [[draw.randrange(64) for _ in range(draw.randint(1, most_rows))] for _ in holdings]
        logits += run_chunks(runner, holdings, chunks)
        for holding in holdings:
            cache.truncate_to(holding, holding.length - draw.randint(0, min(4, holding.length - 1)))
        if step % 4 == 3:  # its blocks, with what was in them, are those of the next
            cache.free(holdings.pop(0))
            holdings.append(cache.fork(holdings[0], holdings[0].length - 1) if step % 8 == 3 else cache.open([]))
        assert all(holding.length < 120 for holding in holdings)
    for holding in holdings:
        cache.free(holding)
    cache.check_integrity()
    return logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_size", [4, 16])
def test_logits_are_those_of_the_plain_runner(kind: str, block_size: int, tmp_path: Path) -> None:
    folder = make_model(tmp_path, kind)
    captured = load(folder, block_size=block_size)
    expected = random_passes(load(folder, "plain", block_size=block_size), seed=1, most_rows=6)
    for actual, plain in zip(random_passes(captured, seed=1, most_rows=6), expected, strict=True):
        torch.testing.assert_close(actual, plain, atol=TOLERANCE, rtol=TOLERANCE)
    assert not captured.misses
    assert {rows for rows, _ in captured.buckets} <= set(ROWS)


def test_a_pass_is_captured_once_and_repeated_from_the_same_buffers(tmp_path: Path) -> None:
    captures: list[Work] = []
    runner = load(make_model(tmp_path))
    eager = EagerCapture()

    def counting(work: Work) -> Work:
        captures.append(work)
        return eager(work)

    runner._captured.clear()
    runner._capture = counting
    outputs = random_passes(runner, seed=2, most_rows=3)
    assert len(captures) == len(runner.buckets) < len(outputs)
    again = random_passes(runner, seed=2, most_rows=3)
    assert len(captures) == len(runner.buckets), "nothing new"
    assert all(torch.equal(*pair) for pair in zip(again, outputs, strict=True))


def test_logits_outlive_the_next_pass(tmp_path: Path) -> None:
    runner = load(make_model(tmp_path))
    holding = runner.cache.open([])
    first = run_chunks(runner, [holding], [[1, 2, 3]])[0]
    kept = first.clone()
    second = run_chunks(runner, [holding], [[4, 5, 6]])[0]
    assert torch.equal(first, kept) and not torch.equal(first, second)


def test_never_written_memory_and_padding_do_not_matter(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    expected = random_passes(load(folder), seed=3, most_rows=5)
    runner = load(folder)
    for index in runner.cache._keys:
        for tensor in runner.cache.layer(index):
            tensor.fill_(float("nan"))
    actual = random_passes(runner, seed=3, most_rows=5)
    assert all(torch.equal(*pair) for pair in zip(actual, expected, strict=True))


def test_what_it_does_not_do_the_plain_runner_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_model(tmp_path)
    runner, plain = load(folder), load(folder, "plain")
    ids = [3, 1, 4, 1, 5, 9]
    parents = [None, 0, 0, 1, 2, 2]
    with caplog.at_level("INFO"):
        for make in (
            lambda segment: Batch.of_trees([segment], ids, [6], parents),
            lambda segment: Batch.of_chains([segment], ids, [6], (0,)),
        ):
            outputs = []
            for each in (runner, plain):
                holding = each.cache.open([])
                each.cache.append(holding, 6)
                outputs.append(each.forward(make(Segment(holding, 0, 6))))
            torch.testing.assert_close(outputs[0].logits, outputs[1].logits, atol=TOLERANCE, rtol=TOLERANCE)
    assert runner.misses[GraphMiss.TREE] == runner.misses[GraphMiss.FEATURES] == 1
    assert "first pass plain (transformers): tree" in caplog.text


def test_many_rows_are_read_by_the_plain_runner(tmp_path: Path) -> None:
    folder = make_model(tmp_path, max_position_embeddings=512)
    runner, plain = load(folder, num_blocks=128), load(folder, "plain", num_blocks=128)
    draw = random.Random(0)
    ids = [draw.randrange(64) for _ in range(ROWS[-1] + 4)]
    logits = []
    for each in (runner, plain):
        holding = each.cache.open([])
        parts = [run_chunks(each, [holding], [part])[0] for part in (ids[:-3], ids[-3:])]
        logits.append(torch.cat(parts))
    torch.testing.assert_close(logits[0], logits[1], atol=TOLERANCE, rtol=TOLERANCE)
    assert runner.misses == {GraphMiss.ROWS: 1}
    assert (3, 256) in runner.buckets


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_deterministic_logits_are_the_same_bits(kind: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path, kind)
    runner, ids = load(folder, deterministic=True), random_ids()
    expected = at_once(runner, ids)
    for way in (one_by_one, with_rollbacks, among_others):
        assert torch.equal(way(load(folder, deterministic=True, num_blocks=512), ids), expected), way.__name__
    assert isinstance(runner, CapturedRunner) and "trees" in runner.no_trees
    assert {rows for rows, _ in runner.buckets} == {16}


def test_deterministic_features_are_those_of_the_plain_runner(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    ids = random_ids(40)
    outputs = []
    for each in (load(folder, deterministic=True), load(folder, "plain")):
        holding = each.cache.open([])
        each.cache.append(holding, len(ids))
        batch = Batch.of_chains([Segment(holding, 0, len(ids))], ids, [7], (1,))
        outputs += [each.forward(batch), each.forward(replace(batch, has_all_features=True))]
    for actual, plain in zip(outputs[:2], outputs[2:], strict=True):
        torch.testing.assert_close(actual.logits, plain.logits, atol=TOLERANCE, rtol=TOLERANCE)
        torch.testing.assert_close(actual.features, plain.features, atol=TOLERANCE, rtol=TOLERANCE)


def test_weights_are_held_once(tmp_path: Path) -> None:
    runner = load(make_model(tmp_path))
    model = runner._plain._packed._model
    layer = runner._network._layers[0]
    attention = model.model.layers[0].self_attn
    begin = layer.query_key_value.data_ptr()
    assert attention.q_proj.weight.data_ptr() == begin
    assert begin < attention.v_proj.weight.data_ptr() < begin + layer.query_key_value.nbytes


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("gemma2", {}, "no Llama"),
        ("llama", {"cache": "contiguous"}, "a contiguous cache has no block tables"),
        ("llama", {"quantization": "int8"}, "it does not support --quantization"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    kind: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelRefusedError, match=reason):
        load(make_model(tmp_path, kind), **changes)


def test_auto_is_another_runner_on_a_cpu(tmp_path: Path) -> None:
    assert not isinstance(load(make_model(tmp_path), "auto"), CapturedRunner)


def test_buckets() -> None:
    assert [row_bucket(count, ROWS) for count in (1, 5, 7, 25, 128)] == [1, 5, 8, 32, 128]
    assert [key_bucket(count, 1000) for count in (1, 128, 129, 512, 513, 1000)] == [
        FEWEST_KEYS,
        128,
        256,
        512,
        1000,
        1000,
    ]
