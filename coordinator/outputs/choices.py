"""The outputs of one request, generated side by side."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from coordinator.deadline import NEVER, Deadline
from coordinator.outputs.counted_output import CountedOutput
from coordinator.outputs.generation import Generation
from coordinator.outputs.output_part import OutputPart
from coordinator.pair import Pair
from coordinator.requests.request import GenerationRequest
from specpair.errors import PeerUnavailableError

AHEAD = 8
"""Parts of an output that are buffered for its client."""

Item = TypeVar("Item")


class ChoicePart(NamedTuple):
    """A part of one output."""

    choice_index: int
    """The index of the output in the client's answer."""
    generation: CountedOutput
    part: OutputPart


class Choices:
    """Runs the outputs of a request; one that fails ends them all.

    The first feeds the prompt; the others begin as forks of its sequences. Each has its own seed, so that it equals the
    output of a request for it alone.
    """

    def __init__(
        self,
        request: GenerationRequest,
        pair: Pair,
        arrival: float | None = None,
        deadline: Deadline = NEVER,
    ):
        """`arrival` is the time.perf_counter at which the request arrived, now if None; `deadline` is that of its
        client."""
        self._request = request
        first = Generation(request, pair, arrival, deadline=deadline)
        others = [Generation(request.output(i), pair, arrival, first, deadline) for i in range(1, request.best_of)]
        self.generations = [first, *others]
        self.passed_over: list[Generation] = []
        """Finished outputs that are not among the best."""

    async def parts(self) -> AsyncGenerator[ChoicePart, None]:
        """The parts as they come; with best_of above n, output by output once all are finished."""
        async with aclosing(merge([generation.parts() for generation in self.generations])) as parts:
            if self._request.best_of == self._request.n:
                async for index, part in parts:
                    yield ChoicePart(index, self.generations[index], part)
                return
            collected: list[list[OutputPart]] = [[] for _ in self.generations]
            async for index, part in parts:
                collected[index].append(part)
        best = self._best()
        self.passed_over = [generation for i, generation in enumerate(self.generations) if i not in best]
        for choice_index, index in enumerate(best):
            for part in collected[index]:
                yield ChoicePart(choice_index, self.generations[index], part)

    def _best(self) -> list[int]:
        """The n outputs with the highest mean logprob, best first; ties go to the lower index."""
        order = sorted(range(len(self.generations)), key=lambda i: self.generations[i].mean_logprob, reverse=True)
        return order[: self._request.n]


async def merge(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """Yields the items of all sources as they come, each with the index of its source.

    The sources run ahead of the consumer, together by AHEAD items per source: the next item is generated while the
    client is written to, and a client that does not read blocks its outputs. If one source fails, or the iteration ends
    early, the others are cancelled. All have ended when this has.
    """
    queue: asyncio.Queue[tuple[int, Item] | _End] = asyncio.Queue(AHEAD * len(sources))
    tasks = [asyncio.create_task(_forward(index, source, queue)) for index, source in enumerate(sources)]
    try:
        running = len(tasks)
        while running:
            item = await _next_of(queue)
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                running -= 1
    finally:
        item = None  # else its error refers to itself, and keeps the request until that is collected
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next_of(queue: "asyncio.Queue[tuple[int, Item] | _End]") -> "tuple[int, Item] | _End":
    """The next item, without a turn of the loop if it is there: a stopping process gives what needs no wait."""
    if not queue.empty():
        return queue.get_nowait()
    item = await queue.get()
    await asyncio.sleep(0)  # what its source does next goes first: sending its next call
    return item


@dataclass(frozen=True)
class _End:
    """Marks the end of a source."""

    error: Exception | None = None
    """The error with which the source ended."""


async def _forward(
    index: int, source: AsyncGenerator[Item, None], queue: "asyncio.Queue[tuple[int, Item] | _End]"
) -> None:
    end = _End()
    try:
        async with aclosing(source):
            async for item in source:
                await queue.put((index, item))
    except Exception as error:
        end = _End(error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        end = _End(PeerUnavailableError("the connection was closed"))  # grpc.aio cancels the calls on it
    await queue.put(end)
    del end  # as in `merge`
