"""The outputs of one request, generated side by side."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from coordinator.generation import Generation, Round
from coordinator.pair import Pair
from coordinator.request import GenerationRequest

Item = TypeVar("Item")


class ChoiceRound(NamedTuple):
    """A round of one output."""

    choice_index: int
    """Which output it is to the client."""
    generation: Generation
    round: Round


class Choices:
    """Runs the outputs of a request; one that fails ends them all.

    The first feeds the prompt, the others begin as copies of its sequences. Each is drawn with a seed of its own, so
    that it is what a request for it alone would give.
    """

    def __init__(self, request: GenerationRequest, pair: Pair, arrival: float | None = None):
        """`arrival` is the time.perf_counter at which the request came in, now if None."""
        self._request = request
        first = Generation(request, pair, arrival)
        others = [Generation(request.output(i), pair, arrival, first) for i in range(1, request.best_of)]
        self.generations = [first, *others]

    async def rounds(self) -> AsyncGenerator[ChoiceRound, None]:
        """The rounds as they come or, where the best outputs are wanted, output by output once all are finished."""
        async with aclosing(merge([generation.rounds() for generation in self.generations])) as rounds:
            if self._request.best_of == self._request.n:
                async for index, round_ in rounds:
                    yield ChoiceRound(index, self.generations[index], round_)
                return
            collected: list[list[Round]] = [[] for _ in self.generations]
            async for index, round_ in rounds:
                collected[index].append(round_)
        for choice_index, index in enumerate(self._best()):
            for round_ in collected[index]:
                yield ChoiceRound(choice_index, self.generations[index], round_)

    def _best(self) -> list[int]:
        """The n outputs with the highest mean logprob, best first; of equals the one with the lower seed."""
        order = sorted(range(len(self.generations)), key=lambda i: self.generations[i].mean_logprob, reverse=True)
        return order[: self._request.n]


async def merge(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """The items of all sources as they come, each with the index of its source.

    A source is asked for its next item once the last one was taken. When one fails, or the iteration ends early, the
    others are cancelled, and all have ended when this has.
    """
    if len(sources) == 1:
        async with aclosing(sources[0]):
            async for item in sources[0]:
                yield 0, item
        return
    waiting = {asyncio.create_task(_next(source)): index for index, source in enumerate(sources)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                index = waiting.pop(task)
                if (item := task.result()) is not None:
                    yield index, item
                    waiting[asyncio.create_task(_next(sources[index]))] = index
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for source in sources:
            await source.aclose()


async def _next(source: AsyncGenerator[Item, None]) -> Item | None:
    """The next item; None behind the last."""
    return await anext(source, None)
