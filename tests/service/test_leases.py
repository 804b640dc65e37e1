"""Sequences that a service gives up: who opened them opens them again, and loses nothing but time."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from specpair.v1 import sampling_pb2
from tests.service.test_engine_faults import open_sequence, verify
from tests.service.test_greedy import make_similar
from tests.services import RunningModel, RunningPair, engine_config, running_pair, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPT = [5, 17, 3]


async def test_a_forgotten_sequence_is_closed(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path), sequence_lease=0.2)) as target:
        await open_sequence(target, "s", PROMPT)
        await verify(target, "s", 0, 3)
        async with asyncio.timeout(60):
            while len(target.host.sequences):
                await asyncio.sleep(0.02)
        await target.check_clean()
        assert target.registry.get_sample_value("specpair_expired_sequences_total") == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await verify(target, "s", 1, 4)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def give_up_all(*models: RunningModel) -> None:
    """Whatever is idle, again and again."""
    for model in models:
        store = model.host.sequences
        store.limits = replace(store.limits, lease_seconds=0.0)
    while True:
        for model in models:
            model.host.sequences.expire()
        await asyncio.sleep(0.02)


async def outputs_of(pair: RunningPair) -> list[list[int]]:
    """Greedy, and drawn under the coupled rule."""
    coupled = {"rule": sampling_pb2.ACCEPTANCE_RULE_COUPLED, "temperature": 1.0, "seed": 3}
    kinds = ({"temperature": 0.0}, coupled)
    outputs = await asyncio.gather(
        *(pair.generate(PROMPT, 30, num_speculative_tokens=3, **kind) for kind in kinds)  # type: ignore[arg-type]
    )
    return [output.token_ids for output in outputs]


async def test_what_expires_between_rounds_costs_no_token(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "target", seed=5)
    draft = make_similar(folder, tmp_path / "draft")
    async with running_pair(engine_config(folder), engine_config(draft)) as pair:
        assert pair.draft is not None
        undisturbed = await outputs_of(pair)
        assert undisturbed[0] == generate_greedily(load_plain(folder), PROMPT, 30)
        disturber = asyncio.create_task(give_up_all(pair.target, pair.draft))
        try:
            assert await outputs_of(pair) == undisturbed
        finally:
            disturber.cancel()
            with suppress(asyncio.CancelledError):
                await disturber
        assert pair.target.host.sequences.expired_count > 0
        assert pair.draft.host.sequences.expired_count > 0
        await pair.check_clean()
