"""The order of a run: cases take turns, so that the noise of a shared machine affects all alike."""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence

from bench.case import Case
from bench.measurement import Measurement, Output, Turn
from bench.progress import Progress

Run = Callable[[Turn], Awaitable[Output]]


def turns(cases: Sequence[Case], prompts: int, repetitions: int, seed: int) -> list[Turn]:
    """Every case on every prompt in every repetition.

    Cases of one temperature and batch size are compared, so they run one after the other on one prompt, in an order
    shuffled each time. A batch of n takes n prompts at once, so there are fewer groups.
    """
    shuffler = random.Random(seed)
    order: list[Turn] = []
    for repetition in range(repetitions):
        for block in dict.fromkeys(case.block for case in cases):
            members = [case for case in cases if case.block == block]
            for prompt in range(group_count(prompts, block[1])):
                shuffler.shuffle(members)
                order += [Turn(case=case, prompt=prompt, repetition=repetition) for case in members]
    return order


def group_count(prompts: int, batch_size: int) -> int:
    """Groups of prompts that are generated together."""
    return max(1, prompts // batch_size)


def group(prompts: Sequence[list[int]], turn: Turn) -> list[list[int]]:
    """The prompts of a turn, one for each place of its batch; they repeat from the first if there are too few."""
    size = turn.case.batch_size
    return [prompts[(turn.prompt * size + place) % len(prompts)] for place in range(size)]


async def measure(order: Sequence[Turn], run: Run, progress: Progress) -> list[Measurement]:
    """All turns in order, after one warm-up turn of each case, which is not kept."""
    measurements: list[Measurement] = []
    with progress.over(len(order) + len(list(warm_ups(order))), "turns") as advance:
        for turn in warm_ups(order):
            advance(f"warming up {turn.case.name}")
            await run(turn)
        for turn in order:
            temperature, batch_size = turn.case.block
            advance(f"T={temperature:g} batch {batch_size} prompt {turn.prompt + 1} {turn.case.name}")
            measurements.append(Measurement(turn=turn, output=await run(turn)))
    return measurements


def warm_ups(order: Sequence[Turn]) -> Iterator[Turn]:
    """The first turn of each case."""
    seen: set[Case] = set()
    for turn in order:
        if turn.case not in seen:
            seen.add(turn.case)
            yield turn
