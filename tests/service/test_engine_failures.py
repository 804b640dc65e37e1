"""Passes that fail, memory that is short, a device that is lost: who notices, and what is left."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.client.channel import connect
from specpair.models.batch import Batch
from specpair.v1 import draft_service_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from specpair.v1.target_service_pb2_grpc import TargetServiceStub
from tests.service.test_engine_faults import CACHES, close, hold_device, open_sequence, verify
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

ROOT = Path(__file__).parents[2]
POISON = 63
TIMEOUT = 60.0


def fail_where(model: RunningModel, is_bad: Callable[[Batch], bool], error: Callable[[], Exception]) -> list[int]:
    """Passes for which `is_bad` fail from now on; the list tells how many sequences each failed one held."""
    runner: Any = model.host.engine._turns.runner
    forward, failed = runner.forward, []

    def fail(batch: Batch) -> torch.Tensor:
        if is_bad(batch):
            failed.append(len(batch.segments))
            raise error()
        return forward(batch)

    runner.forward = fail
    return failed


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), str(caught.value.trailing_metadata())


@pytest.mark.parametrize("cache", CACHES)
async def test_a_sequence_that_fails_fails_nobody_else(cache: str, tmp_path: Path) -> None:
    """Again and again it is in the same turn as others; they are answered all the same, and rightly."""
    folder = make_model(tmp_path, seed=1)
    plain = load_plain(folder)
    prompts = {"a": [1, 2, 3], "b": [4, 5, 6, 7], "bad": [8, POISON], "c": [9]}
    async with running_target(engine_config(folder, cache=cache)) as target:
        failed = fail_where(target, lambda batch: POISON in batch.token_ids, lambda: RuntimeError("no luck"))
        for name, prompt in prompts.items():
            await open_sequence(target, name, prompt)
        held = dict(prompts)
        for step in range(3):
            release = hold_device(target)
            calls = {name: asyncio.create_task(verify(target, name, step, len(held[name]))) for name in prompts}
            await asyncio.sleep(0.05)
            release.set()
            code, metadata = await refused(calls.pop("bad"))
            assert code is grpc.StatusCode.INTERNAL and "FORWARD_FAILED" in metadata
            for name, call in calls.items():
                held[name] = [*held[name], await call]
        for name in ("a", "b", "c"):
            assert held[name] == [*prompts[name], *generate_greedily(plain, prompts[name], 3)]
        assert sorted(failed) == [1, 1, 1, 4], "after the first failure it has passes of its own"
        await close(target, *prompts)
        await target.check_clean()


@pytest.mark.parametrize("cache", CACHES)
async def test_a_failed_call_is_repeated_with_the_same_tokens(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a proposal, and where only memory was short: then what would have been drawn is drawn."""
    folder = make_model(tmp_path, seed=1)
    proposals = []
    error = torch.OutOfMemoryError("no memory")
    for is_bad in ([], [False, False, True, False, True]):
        countdown = iter(is_bad)
        async with running_draft(engine_config(folder, cache=cache)) as draft:
            host: Any = draft.host
            monkeypatch.setattr(host.model, "_chains", None)  # a pass for each token
            await open_sequence(draft, "s", [1, 2, 3], temperature=1.0, seed=7)
            request = draft_service_pb2.ProposeTokensRequest(
                sequence_id="s", step=0, base_length=3, num_speculative_tokens=5
            )
            failed = fail_where(draft, lambda _, left=countdown: next(left, False), lambda: error)  # type: ignore[misc]
            for _ in range(sum(is_bad)):
                assert (await refused(draft.hot.ProposeTokens(request)))[0] is grpc.StatusCode.INTERNAL
            assert len(failed) == sum(is_bad)
            proposals.append(list((await draft.hot.ProposeTokens(request)).proposal.token_ids))
            await close(draft, "s")
            await draft.check_clean()
    assert proposals[0] == proposals[1]


async def test_short_memory_costs_no_cache(tmp_path: Path) -> None:
    """After it only the tokens of the failed pass are fed again."""
    folder = make_model(tmp_path, seed=1)
    prompt = list(range(1, 21))
    expected = generate_greedily(load_plain(folder), prompt, 2)
    async with running_target(engine_config(folder)) as target:
        await open_sequence(target, "a", prompt)
        assert await verify(target, "a", 0, 20) == expected[0]
        countdown = iter([True])
        fail_where(target, lambda _: next(countdown, False), lambda: RuntimeError("DefaultCPUAllocator: no memory"))
        assert (await refused(verify(target, "a", 1, 21)))[0] is grpc.StatusCode.INTERNAL
        fed = target.host.engine.statistics.batch_tokens.total
        assert await verify(target, "a", 1, 21) == expected[1]
        assert target.host.engine.statistics.batch_tokens.total - fed == 1
        await close(target, "a")
        await target.check_clean()


@pytest.mark.parametrize("cache", CACHES)
async def test_a_fork_does_not_trust_what_a_failed_pass_wrote(cache: str, tmp_path: Path) -> None:
    """It has one token more than the cache holds, and the pass that was to feed it fails."""
    folder = make_model(tmp_path, seed=1)
    prompt = list(range(1, 11))
    plain = load_plain(folder)
    async with running_target(engine_config(folder, cache=cache)) as target:
        await open_sequence(target, "a", prompt)
        tokens = [*prompt, await verify(target, "a", 0, 10)]
        await target.sequences.ForkSequence(pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b"))
        countdown = iter([True])
        fail_where(target, lambda _: next(countdown, False), lambda: torch.OutOfMemoryError("no memory"))
        assert (await refused(verify(target, "b", 1, 11, [30])))[0] is grpc.StatusCode.INTERNAL
        assert await verify(target, "b", 1, 11, [30]) == generate_greedily(plain, [*tokens, 30], 1)[0]
        await close(target, "a", "b")
        await target.check_clean()


@pytest.mark.parametrize("cache", CACHES)
async def test_what_follows_a_pass_may_fail_as_well(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nobody knows how far it came: every call of the pass is to be repeated, and each has a pass of its own."""
    folder = make_model(tmp_path, seed=1)
    plain = load_plain(folder)
    prompts = {"a": [1, 2, 3], "b": [4, 5]}
    async with running_target(engine_config(folder, cache=cache)) as target:
        for name, prompt in prompts.items():
            await open_sequence(target, name, prompt)

        def fail(*arguments: object) -> None:
            raise IndexError("a mistake")

        with monkeypatch.context() as patched:
            patched.setattr(target.host.engine._turns, "advance", fail)
            release = hold_device(target)
            calls = [asyncio.create_task(verify(target, name, 0, len(prompt))) for name, prompt in prompts.items()]
            await asyncio.sleep(0.05)
            release.set()
            for call in calls:
                code, metadata = await refused(call)
                assert code is grpc.StatusCode.INTERNAL and "FORWARD_FAILED" in metadata
        for name, prompt in prompts.items():
            assert await verify(target, name, 0, len(prompt)) == generate_greedily(plain, prompt, 1)[0]
        await close(target, *prompts)
        await target.check_clean()


@asynccontextmanager
async def failing_target(
    folder: Path, failure: str = "lost", pass_timeout: float = 60.0
) -> AsyncIterator[tuple[asyncio.subprocess.Process, grpc.aio.Channel]]:
    """The process, once it listens, and a channel to it. What its device does when it reads POISON is the `failure`."""
    arguments = [str(folder), str(POISON), failure, str(pass_timeout)]
    command = [sys.executable, "-m", "tests.service.failing_target_process", *arguments]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            async for line in process.stderr:
                if match := re.search(r"listening on (127\.0\.0\.1:\d+)", line.decode()):
                    async with connect(match[1]) as channel:
                        yield process, channel
                    return
        raise AssertionError("the process ended before it listened")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_process_whose_device_is_lost_ends(tmp_path: Path) -> None:
    """It must not go on and say that it serves: whoever looks after it starts a new one."""
    async with failing_target(make_model(tmp_path)) as (process, channel):
        sequences, hot = SequenceServiceStub(channel), TargetServiceStub(channel)
        watcher: Any = health_pb2_grpc.HealthStub(channel)
        health = watcher.Watch(health_pb2.HealthCheckRequest())
        assert (await anext(aiter(health))).status == health_pb2.HealthCheckResponse.SERVING
        request = pb.OpenSequenceRequest(sequence_id="s", token_ids=[1, POISON], sampling={"seed": 1})
        await sequences.OpenSequence(request)
        call = hot.VerifyProposal(target_service_pb2.VerifyProposalRequest(sequence_id="s", base_length=2))
        assert (await refused(call))[0] is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(TIMEOUT):
            assert (await anext(aiter(health))).status == health_pb2.HealthCheckResponse.NOT_SERVING
            _, errors = await process.communicate()
        assert process.returncode == 1
        lines = errors.decode()
        assert "target service ends: its device thread ended" in lines
        assert "device-side assert triggered" in lines


async def test_an_engine_that_is_broken_says_so_and_refuses(tmp_path: Path) -> None:
    """Whatever ends the device thread."""
    async with running_target(engine_config(make_model(tmp_path))) as target:
        for name in "ab":
            await open_sequence(target, name, [1, 2, 3])
        fail_where(target, lambda _: True, lambda: KeyboardInterrupt())  # type: ignore[arg-type, return-value]
        calls = [verify(target, name, 0, 3) for name in "ab"]
        for call in calls:
            assert (await refused(call))[0] is grpc.StatusCode.UNAVAILABLE
        await asyncio.wait_for(target.host.engine.broken, TIMEOUT)
