"""Clients that leave at random leave no task, descriptor, sequence or block behind, in any of the three services."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.client import ask
from tests.faults.history import compare_all
from tests.faults.reference import read_reference
from tests.faults.workload import make_cases, vary
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model, make_variation

STREAMS = 8
REQUESTS_EACH = 8
PATIENCE = 20.0


@pytest.mark.few_cases()
@pytest.mark.timeout(240)
async def test_random_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", "qwen3", max_position_embeddings=256)
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    cases = make_cases(seed=4, count=8, vocab_size=64, max_tokens=40)
    async with running_pair(engine_config(target, deterministic=True), engine_config(draft)) as pair:
        expected = await read_reference(pair.coordinator, cases)
        await soak(pair.coordinator, cases, expected, seed=1)
        await pair.check_clean()
        before = await settled()
        ends = await soak(pair.coordinator, cases, expected, seed=2)
        await pair.check_clean()
        after = await settled(at_most=before)
    assert ends["OK"] and ends["CANCELLED"]
    for name, count in after.items():
        assert count <= before[name], (before, after)


async def soak(stub: Any, cases: list[Any], expected: Any, seed: int) -> Counter[str]:
    """Many requests, half of them left early; the others are right. How they ended."""
    ends: Counter[str] = Counter()

    async def follow(random: Random) -> None:
        for _ in range(REQUESTS_EACH):
            case = random.choice(cases)
            variation = vary(random, case, 120.0)
            if random.random() < 0.5:
                variation = replace(variation, cancel_after=random.randrange(case.max_tokens))
            told = await ask(stub, case, variation)
            assert not told.is_violation, told.status
            assert compare_all(expected, told.outputs).is_none
            ends[told.status.partition(" ")[0]] += 1

    async with asyncio.TaskGroup() as group:
        for index in range(STREAMS):
            group.create_task(follow(Random(f"{seed} {index}")))
    return ends


def held() -> dict[str, int]:
    """What this process, with all three services in it, holds now."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return {"tasks": len(asyncio.all_tasks()), "threads": threading.active_count(), "descriptors": descriptors}


async def settled(at_most: dict[str, int] | None = None) -> dict[str, int]:
    """What is held once it is no more than that, or has not changed for a while; at the latest after some seconds."""
    last, since = held(), 0
    for _ in range(int(PATIENCE / 0.1)):
        await asyncio.sleep(0.1)
        now = held()
        if at_most is not None and all(now[name] <= at_most[name] for name in now):
            return now
        since = since + 1 if now == last else 0
        last = now
        if at_most is None and since >= 10:
            return now
    return last
