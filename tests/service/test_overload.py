"""More requests than there are places for: who is taken finishes as alone, the rest is told at once."""

import asyncio
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from specpair.client.channel import connect
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.http_service import http_client
from tests.service.test_greedy import make_similar
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

PLACES = 3
WAVES = 3
MOST_GROWTH_MIB = 16.0
"""From the first wave to the last."""
LENGTH = 24
ENDLESS = 1900
"""Tokens that take so long that a test is over before."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", "llama", seed=5, max_position_embeddings=2048)
    return target, make_similar(target, folder / "draft")


def serving(models: tuple[Path, Path], **options: Any) -> Any:
    """A pair whose target has no more places than the coordinator gives away."""
    target, draft = (engine_config(folder, max_num_seqs=PLACES) for folder in models)
    return running_pair(target, draft, **{"num_speculative_tokens": 3, **options})


def prompt_of(index: int) -> list[int]:
    return [index % 64, 7 * index % 64, 3]


async def outcome(pair: RunningPair, index: int, **options: Any) -> Generated | grpc.aio.AioRpcError:
    try:
        return await pair.generate(prompt_of(index), LENGTH, temperature=0, **options)
    except grpc.aio.AioRpcError as error:
        return error


async def test_four_times_the_load_that_fits(models: tuple[Path, Path]) -> None:
    """Waves of requests, all at once: as many as run and wait finish, with greedy's own tokens; the rest hears at once
    that it does not fit, and the memory is none the worse."""
    plain = load_plain(models[0])
    resident: list[float] = []
    async with serving(models, max_queued_requests=PLACES) as pair:
        for wave in range(WAVES):
            indices = range(wave * 100, wave * 100 + 4 * 2 * PLACES)
            order: list[Generated | grpc.aio.AioRpcError] = []

            async def follow(index: int, order: list[Generated | grpc.aio.AioRpcError] = order) -> Any:
                order.append(ended := await outcome(pair, index))
                return ended

            outcomes = await asyncio.gather(*(follow(index) for index in indices))
            done = {i: o for i, o in zip(indices, outcomes, strict=True) if isinstance(o, Generated)}
            assert len(done) >= 2 * PLACES
            for index, generated in done.items():
                assert generated.token_ids == generate_greedily(plain, prompt_of(index), LENGTH)
            refused = [o for o in outcomes if isinstance(o, grpc.aio.AioRpcError)]
            assert Counter(error.code() for error in refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED: len(refused)}
            assert refused and all(retry_delay(error) > 0 for error in refused)
            finished_at = [place for place, one in enumerate(order) if isinstance(one, Generated)]
            assert finished_at[PLACES] >= len(refused), "who waited for a place ended before who was refused"
            resident.append(resident_mib())
        await pair.check_clean()
        assert resident[-1] - resident[0] < MOST_GROWTH_MIB
        assert "specpair_num_requests_waiting 0.0" in await metrics(pair)


async def test_who_waits_is_served_in_the_end(models: tuple[Path, Path]) -> None:
    """A place is free when draft and target have theirs back: no target that is still closing refuses anybody."""
    plain = load_plain(models[0])
    async with serving(models, max_queued_requests=64) as pair:
        outcomes = await asyncio.gather(*(outcome(pair, index, n=1 + index % PLACES) for index in range(24)))
        for index, generated in enumerate(outcomes):
            assert isinstance(generated, Generated), generated
            expected = generate_greedily(plain, prompt_of(index), LENGTH)
            assert Counter(generated.token_ids) == Counter(expected * (1 + index % PLACES))
        await pair.check_clean()
        text = await metrics(pair)
        assert "specpair_request_queue_time_seconds_count 24.0" in text
        assert 'specpair_request_refusals_total{reason="queue_full"} 0.0' in text


async def test_a_refusal_comes_at_once_and_a_waiting_client_may_leave(models: tuple[Path, Path]) -> None:
    async with serving(models, max_queued_requests=1) as pair, connect(pair.address) as channel:
        stub: Any = CoordinatorServiceStub(channel)
        endless = pb.GenerateTokensRequest(token_ids={"ids": [1, 2]}, max_tokens=ENDLESS, n=PLACES)
        running = stub.GenerateTokens(endless)
        await running.read()
        waiting = asyncio.create_task(outcome(pair, 1))
        while "specpair_num_requests_waiting 1.0" not in await metrics(pair):
            await asyncio.sleep(0.01)
        refused = await outcome(pair, 2)
        assert isinstance(refused, grpc.aio.AioRpcError)
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not running.done() and not waiting.done(), "it waited for nobody"
        waiting.cancel()
        while "specpair_num_requests_waiting 0.0" not in await metrics(pair):
            await asyncio.sleep(0.01)
        running.cancel()
        assert isinstance(await outcome(pair, 3), Generated)
        await pair.check_clean()


async def test_waiting_has_an_end_over_http(models: tuple[Path, Path]) -> None:
    async with serving(models, max_queue_wait=0.1) as pair, http_client(pair) as client:
        endless = {"prompt": [1, 2], "max_tokens": ENDLESS, "n": PLACES, "logprobs": 0, "stream": True}
        async with client.stream("POST", "/v1/completions", json=endless) as running:
            assert running.status_code == 200
            refused = await client.post("/v1/completions", json={"prompt": [3], "max_tokens": 2})
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
        await pair.check_clean()


def resident_mib() -> float:
    """Of this process, with all three services in it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def retry_delay(error: grpc.aio.AioRpcError) -> float:
    """Seconds, from the status' RetryInfo."""
    status = rpc_status.from_call(error)  # pyright: ignore[reportArgumentType]
    assert status is not None
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    return retry.retry_delay.ToMilliseconds() / 1000


async def metrics(pair: RunningPair) -> str:
    async with http_client(pair) as client:
        return (await client.get("/metrics")).text


async def test_the_prompts_of_one_http_request_are_taken_together_or_not_at_all(models: tuple[Path, Path]) -> None:
    async with serving(models, max_queued_requests=1) as pair, http_client(pair) as client:
        prompts = [prompt_of(index) for index in range(PLACES)]
        body = {"prompt": prompts, "max_tokens": LENGTH, "temperature": 0}
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(6)))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses == {200: 2, 429: 4}, "one runs, one waits"
        usage = [answer.json()["usage"]["completion_tokens"] for answer in answers if answer.status_code == 200]
        assert usage == [PLACES * LENGTH] * 2
        text = await metrics(pair)
        assert f'specpair_requests_total{{outcome="failed"}} {4.0 * PLACES}' in text
        assert f'specpair_requests_total{{outcome="finished"}} {2.0 * PLACES}' in text
        await pair.check_clean()
