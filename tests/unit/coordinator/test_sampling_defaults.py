"""The first target's sampling defaults hold, whatever other targets say, and a request keeps what it began with."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.pair import Pair
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from specpair.model_info import SamplingDefaults
from specpair.v1 import coordinator_service_pb2 as pb
from tests.unit.coordinator.fake_peers import FakeTarget
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import CONFIG, PROMPT, targets_of, until

OWN, OTHER = SamplingDefaults(temperature=0.5, top_k=7), SamplingDefaults(temperature=2.0)


@pytest.fixture
def first() -> FakeTarget:
    return FakeTarget(model_info("t0", sampling_defaults=OWN), "target:1")


@pytest.fixture
async def serving(first: FakeTarget) -> AsyncIterator[Serving]:
    async with targets_of(first).watched() as targets:
        await targets.wait_until_there(1.0)
        yield Serving(Pair(config=CONFIG, target=targets, draft=None))


def answer(serving: Serving, max_tokens: int = 12):
    request = pb.GenerateTokensRequest(token_ids={"ids": PROMPT}, max_tokens=max_tokens, sampling={"top_k": 3})  # type: ignore[arg-type]
    return serving.generate(Call(request=request))


async def test_a_request_that_loses_its_target_keeps_its_options(first: FakeTarget, serving: Serving) -> None:
    responses = answer(serving)
    parts = [await anext(responses) for _ in range(3)]
    first.restart()  # with a model that says nothing of sampling
    parts += [part async for part in responses]
    before, after = first.options
    assert before.sampling == after.sampling
    assert (before.sampling.temperature, before.sampling.top_k) == (0.5, 3)
    assert (parts[-1].summary.sampling.temperature, parts[-1].summary.sampling.top_k) == (0.5, 3)


async def test_a_target_with_other_defaults_changes_no_request_and_is_named_in_the_log(
    first: FakeTarget, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    first.restart()
    (link,) = serving.pair.target.links.values()
    link.want_check()
    await until(lambda: link.is_there)
    assert serving.pair.target.info.sampling_defaults != OWN
    responses = [response async for response in answer(serving)]
    assert first.options[-1].sampling.temperature == responses[-1].summary.sampling.temperature == 0.5
    assert "other sampling defaults than the first (temperature 0.5, top_k 7): none; those of the first" in caplog.text


async def test_several_targets_draw_alike(first: FakeTarget) -> None:
    second = FakeTarget(model_info("t1", sampling_defaults=OTHER), "target:2")
    async with targets_of(first, second).watched() as targets:
        await until(lambda: [link.is_there for link in targets.links.values()] == [True, True])
        assert targets.sampling_defaults in (OWN, OTHER)  # that of the one that was compared first
        serving = Serving(Pair(config=CONFIG, target=targets, draft=None))
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(drained(answer(serving)))
        opened = [*first.options, *second.options]
        assert first.options and second.options, "both were used"
        assert {options.sampling.temperature for options in opened} == {targets.sampling_defaults.temperature}


async def drained(responses: AsyncIterator[pb.GenerateTokensResponse]) -> None:
    async for _ in responses:
        pass
