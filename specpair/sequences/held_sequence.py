"""One open sequence of a process: its tokens, its options, the last answer."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch

from specpair.errors import SequenceNotFoundError
from specpair.options import SequenceOptions
from specpair.sequences.sequence import Sequence
from specpair.speculation.adjustments import NamedTokens, RowBlock
from specpair.speculation.token_index import TokenIndex


class StoredAnswer(Protocol):
    """What a hot call returned, kept for a repetition."""

    @property
    def byte_count(self) -> int:
        """About as much memory as it takes."""
        ...


Answer = TypeVar("Answer", bound=StoredAnswer)
Result = TypeVar("Result")


@dataclass(eq=False)
class HeldSequence(Generic[Answer]):
    """One open sequence."""

    options: SequenceOptions
    opened_with: Any
    """The request that made it, to know a repetition."""
    prompt_length: int
    cached: Sequence
    length: int
    """Committed tokens; `cached.tokens` may go on with tokens that are only proposed."""
    is_open: bool = True
    is_spare: bool = False
    """Nobody waits for it, it is kept in case it is asked for again: it makes room at once."""
    touched_at: float = 0.0
    """When a call last concerned it, or was seen at work on it: a reading of the store's clock."""
    last_step: int = -1
    last_body: Any = None
    answer: "asyncio.Task[Answer] | None" = field(default=None, repr=False)
    prefill: "asyncio.Task[None] | None" = field(default=None, repr=False)
    """Work ahead of the first call; the sequence may not be changed until it is done."""

    _named: NamedTokens | None = field(default=None, repr=False)
    _index: TokenIndex = field(default_factory=TokenIndex, repr=False)

    def index(self) -> TokenIndex:
        """An index of the committed tokens, kept up to date at each call; event loop only."""
        self._index.follow(self.cached.tokens, self.length)
        return self._index

    def row_block(self, row_count: int, device: torch.device) -> RowBlock:
        """What the options make of the logits behind the last `row_count` tokens; for the device thread."""
        sampling = self.options.sampling
        if self._named is None:
            self._named = NamedTokens.of(sampling, self.cached.tokens[: self.prompt_length], device)
        return RowBlock(sampling, self._named, self.cached.tokens, self.prompt_length, row_count)

    def cut(self, length: int) -> None:
        """The tokens from `length` on are gone; those of the prompt among them are output when they come again."""
        self.length = length
        self._index.truncate(length)
        if length < self.prompt_length:
            self.prompt_length = length
            self._named = None

    @property
    def is_busy(self) -> bool:
        return self.answer is not None and not self.answer.done()

    @property
    def is_under_work(self) -> bool:
        """Busy, or working ahead of its first call."""
        return self.is_busy or (self.prefill is not None and not self.prefill.done())


async def settled(held: HeldSequence[Any]) -> None:
    """Until the prefill is done; how it ended shows in the call that needs it."""
    if held.prefill is not None and not held.prefill.done():
        await asyncio.wait([held.prefill])


async def wait_for_answer(task: "asyncio.Task[Result]", sequence_id: str) -> Result:
    """The task's result; it goes on if the caller is cancelled. A closed sequence is not found any more."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise SequenceNotFoundError(sequence_id) from None
        raise
