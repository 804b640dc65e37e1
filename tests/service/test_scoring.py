"""Texts that take longer to score than a call may last."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from coordinator.peers import scoring
from specpair.models.batch import Batch
from specpair.v1 import target_service_pb2 as pb
from specpair.v1.coordinator_service_pb2 import GenerateTokensRequest, TokenIds
from target_service.scorer import MOST_UNFINISHED
from tests.service.test_engine_faults import close, open_sequence
from tests.service.test_logprobs import VOCABULARY, assert_entry, expected_rows
from tests.services import RunningModel, engine_config, running_pair, running_target
from tests.tiny_models import load_plain, make_model

BUDGET = 16
TEXT = torch.randint(VOCABULARY, (100,), generator=torch.Generator().manual_seed(3)).tolist()


class Gate:
    """Stands before a forward pass."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()


@contextmanager
def stopping_before(model: RunningModel, token_count: int) -> Iterator[Gate]:
    """The pass that would feed more tokens than these, since the start, waits at the gate."""
    runner: Any = model.host.engine._turns.runner
    forward, gate, fed = runner.forward, Gate(), 0

    def wait(batch: Batch) -> torch.Tensor:
        nonlocal fed
        fed += len(batch.token_ids)
        if fed > token_count:
            gate.reached.set()
            gate.opened.wait(20)
        return forward(batch)

    runner.forward = wait
    try:
        yield gate
    finally:
        gate.opened.set()


def score(model: RunningModel, token_ids: list[int]) -> Any:
    return model.hot.ScoreTokens(pb.ScoreTokensRequest(token_ids=token_ids, logprobs=2))


async def give_up(model: RunningModel, gate: Gate, *texts: list[int], left: int = 0) -> None:
    """Calls that end at the gate; `left` others go on waiting."""
    calls = [score(model, text) for text in texts]
    assert await asyncio.to_thread(gate.reached.wait, 60)
    async with asyncio.timeout(60):
        while wanted(model) != len(calls) + left:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        while wanted(model) != left:
            await asyncio.sleep(0.01)


def wanted(model: RunningModel) -> int:
    """Calls that wait for a text."""
    scorer: Any = model.host._scorer  # type: ignore[union-attr]
    return sum(text.wanted_by for text in scorer._texts.values())


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_the_same_call_again_goes_on(cache: str, tmp_path: Path) -> None:
    """Nothing is fed twice, and the piece that was under way is the last one for a caller who has gone."""
    folder = make_model(tmp_path, seed=1, vocab_size=VOCABULARY)
    rows = expected_rows(load_plain(folder), TEXT)
    async with running_target(engine_config(folder, cache=cache, max_num_batched_tokens=BUDGET)) as target:
        fed = target.host.engine.statistics.batch_tokens
        with stopping_before(target, 3 * BUDGET) as gate:
            await give_up(target, gate, TEXT)
        await target.check_integrity()
        assert fed.total == 4 * BUDGET
        answer = await score(target, TEXT)
        assert fed.total == len(TEXT) - 1
        assert len(answer.logprobs) == len(TEXT) - 1
        for entry, row, token in zip(answer.logprobs, rows, TEXT[1:], strict=False):
            assert_entry(entry, row, token, 2)
        await target.check_clean()


async def test_two_who_want_the_same_share_the_work(tmp_path: Path) -> None:
    """One of them leaves; the other gets it all."""
    async with running_target(engine_config(make_model(tmp_path), max_num_batched_tokens=BUDGET)) as target:
        with stopping_before(target, 2 * BUDGET) as gate:
            other = score(target, TEXT)
            await give_up(target, gate, TEXT, left=1)
        assert len((await other).logprobs) == len(TEXT) - 1
        assert target.host.engine.statistics.batch_tokens.total == len(TEXT) - 1
        await target.check_clean()


async def test_what_is_unfinished_is_kept_within_bounds(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path), max_num_batched_tokens=BUDGET)) as target:
        with stopping_before(target, BUDGET) as gate:
            await give_up(target, gate, *([number, *TEXT] for number in range(MOST_UNFINISHED + 3)))
            assert target.host.info().sequence_count == MOST_UNFINISHED


async def test_what_is_unfinished_takes_nobody_s_place(tmp_path: Path) -> None:
    """All places are taken by texts that nobody waits for: they make room at once."""
    config = engine_config(make_model(tmp_path), max_num_batched_tokens=BUDGET, max_num_seqs=2)
    async with running_target(config) as target:
        with stopping_before(target, BUDGET) as gate:
            await give_up(target, gate, *([number, *TEXT] for number in range(2)))
            for name in ("a", "b"):
                await open_sequence(target, name, [1, 2, 3])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await open_sequence(target, "c", [1, 2, 3])
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await close(target, "a", "b")
        await target.check_clean()


async def test_a_failed_pass_loses_no_scores(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path), max_num_batched_tokens=BUDGET)) as target:
        runner: Any = target.host.engine._turns.runner
        forward, passes = runner.forward, iter(range(100))

        def fail(batch: Batch) -> torch.Tensor:
            if next(passes) == 2:
                raise RuntimeError("no luck")
            return forward(batch)

        runner.forward = fail
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await score(target, TEXT)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert len((await score(target, TEXT)).logprobs) == len(TEXT) - 1
        await target.check_clean()


async def test_a_prompt_that_takes_longer_than_a_call_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call lasts a few pieces; the target was there all the time, so its absence is not what counts."""
    monkeypatch.setattr(scoring, "CALL_SECONDS", 1.0)
    folder = make_model(tmp_path, seed=1, vocab_size=VOCABULARY)
    config = engine_config(folder, max_num_batched_tokens=BUDGET)
    async with running_pair(config, target_timeout=1.5) as pair:
        runner: Any = pair.target.host.engine._turns.runner
        forward = runner.forward

        def linger(batch: Batch) -> torch.Tensor:
            time.sleep(0.3)
            return forward(batch)

        runner.forward = linger
        request = GenerateTokensRequest(token_ids=TokenIds(ids=TEXT), max_tokens=1, prompt_logprobs=2)
        responses = [response async for response in pair.coordinator.GenerateTokens(request)]
        assert sum(len(response.prompt_tokens) for response in responses) == len(TEXT)
        labels = {"grpc_type": "unary", "grpc_service": "specpair.v1.TargetService", "grpc_method": "ScoreTokens"}
        assert (pair.target.registry.get_sample_value("grpc_server_started_total", labels) or 0) > 1
        await pair.check_clean()
