"""A forward pass that does not come back: health says so, and if it never does the process ends."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specpair.models.batch import Batch
from specpair.v1 import draft_service_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub
from specpair.v1.target_service_pb2_grpc import TargetServiceStub
from tests.service.test_engine_failures import POISON, failing_target, refused
from tests.service.test_engine_faults import close, open_sequence
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

TIMEOUT = 60.0
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SILENCE = "specpair_device_silence_seconds"


class Health:
    """What a service says of its health, one change after the other."""

    def __init__(self, channel: grpc.aio.Channel):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        self._changes = aiter(stub.Watch(health_pb2.HealthCheckRequest()))

    async def next(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return (await anext(self._changes)).status


@asynccontextmanager
async def hanging(model: RunningModel) -> AsyncIterator[Callable[[], None]]:
    """The passes of the model hang, until what this gives is called."""
    runner: Any = model.host.engine._turns.runner
    forward, release = runner.forward, threading.Event()

    def wait(batch: Batch) -> torch.Tensor:
        release.wait(TIMEOUT)
        return forward(batch)

    runner.forward = wait
    try:
        yield release.set
    finally:
        release.set()


REQUESTS = {
    "target": lambda model: model.hot.VerifyProposal(
        target_service_pb2.VerifyProposalRequest(sequence_id="s", base_length=3)
    ),
    "draft": lambda model: model.hot.ProposeTokens(
        draft_service_pb2.ProposeTokensRequest(sequence_id="s", base_length=3, num_speculative_tokens=1)
    ),
}


def token_of(answer: Any) -> int:
    """The one that was verified or proposed."""
    return answer.next_token_id if hasattr(answer, "next_token_id") else answer.proposal.token_ids[0]


@pytest.mark.parametrize("service", ["target", "draft"])
async def test_health_follows_a_pass_that_hangs_and_comes_back(
    service: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model(tmp_path, seed=1)
    config = engine_config(folder, pass_timeout=1.0)
    async with running_target(config) if service == "target" else running_draft(config) as model:
        health = Health(model.channel)
        assert await health.next() == SERVING
        async with hanging(model) as release:
            await open_sequence(model, "s", [1, 2, 3])
            call = REQUESTS[service](model)
            assert await health.next() == NOT_SERVING
            assert (model.registry.get_sample_value(SILENCE) or 0.0) >= 1.0
            assert not call.done(), "the caller decides how long it waits"
            release()
            assert token_of(await call) == generate_greedily(load_plain(folder), [1, 2, 3], 1)[0]
            assert await health.next() == SERVING
        assert model.registry.get_sample_value(SILENCE) == 0.0
        await close(model, "s")
        await model.check_clean()
    said = [record.getMessage() for record in caplog.records if "forward pass" in record.getMessage()]
    assert [message.partition(";")[0] for message in said] == [
        "a forward pass has been hanging for 1 s",
        "the hanging forward pass has finished",
    ]


async def test_passes_that_end_in_time_are_none_that_hang(tmp_path: Path) -> None:
    """However long the device thread has been busy with them."""
    async with running_target(engine_config(make_model(tmp_path), pass_timeout=1.0)) as target:
        runner: Any = target.host.engine._turns.runner
        forward, lost = runner.forward, []
        target.host.engine.broken.add_done_callback(lost.append)

        def slow(batch: Batch) -> torch.Tensor:
            time.sleep(0.2)
            return forward(batch)

        runner.forward = slow
        health = Health(target.channel)
        assert await health.next() == SERVING
        await open_sequence(target, "s", [1, 2, 3])
        for step in range(11):
            request = target_service_pb2.VerifyProposalRequest(sequence_id="s", step=step, base_length=3)
            await target.hot.VerifyProposal(request)
        assert not lost
        await target.stop()
        assert await health.next() == NOT_SERVING, "the first change"


def poisoned_call(channel: grpc.aio.Channel, **settings: Any) -> Any:
    """Under way, it has the process read POISON."""
    hot: Any = TargetServiceStub(channel)
    return hot.VerifyProposal(target_service_pb2.VerifyProposalRequest(sequence_id="s", base_length=2), **settings)


async def open_poisoned(channel: grpc.aio.Channel) -> None:
    """A sequence that ends in POISON."""
    sequences: Any = SequenceServiceStub(channel)
    sampling = {"seed": 1, "temperature": 0}
    await sequences.OpenSequence(pb.OpenSequenceRequest(sequence_id="s", token_ids=[1, POISON], sampling=sampling))


async def test_a_pass_that_never_comes_back_ends_the_process(tmp_path: Path) -> None:
    async with failing_target(make_model(tmp_path), "hang", pass_timeout=0.5) as (process, channel):
        health = Health(channel)
        assert await health.next() == SERVING
        await open_poisoned(channel)
        call = poisoned_call(channel)
        assert await health.next() == NOT_SERVING
        assert (await refused(call))[0] is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(TIMEOUT):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert "a forward pass has been hanging for 0.5 s" in errors.decode()
    assert "target service ends: a forward pass hangs" in errors.decode()


@pytest.mark.few_cases()
async def test_the_time_for_which_a_process_is_stopped_does_not_count(tmp_path: Path) -> None:
    """In the middle of a pass, for longer than a pass may take."""
    folder = make_model(tmp_path)
    async with failing_target(folder, "long", pass_timeout=4.0) as (process, channel):
        await open_poisoned(channel)
        call = poisoned_call(channel)
        assert process.stderr is not None
        async with asyncio.timeout(TIMEOUT):
            while b"a long pass has begun" not in await process.stderr.readline():
                pass
        await asyncio.sleep(0.6)  # it has been asked for a sign of life
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(4.5)
        process.send_signal(signal.SIGCONT)
        with suppress(grpc.aio.AioRpcError):  # so long a silence may have ended the connection
            await call
        answer = await poisoned_call(channel, wait_for_ready=True, timeout=TIMEOUT)
        assert answer.next_token_id == generate_greedily(load_plain(folder), [1, POISON], 1)[0]
        process.terminate()
        async with asyncio.timeout(TIMEOUT):
            _, errors = await process.communicate()
    assert process.returncode == 0
    assert "has been hanging" not in errors.decode()
