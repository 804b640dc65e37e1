"""One open sequence of a process: its tokens, options and last answer."""

import asyncio
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from specpair.errors import SequenceNotFoundError
from specpair.grammars.grammar import GrammarState
from specpair.options import SequenceOptions
from specpair.sequences.conditional_calls import Begun, WaitingCall
from specpair.sequences.sequence import Sequence
from specpair.speculation.adjustments import NamedTokens, RowBlock
from specpair.speculation.output_counts import OutputCounts
from specpair.speculation.token_index import TokenIndex


class StoredAnswer(Protocol):
    """The answer of a hot call, kept for a repetition of the call."""

    @property
    def byte_count(self) -> int:
        """Approximate memory in bytes."""
        ...


Answer = TypeVar("Answer", bound=StoredAnswer)
Result = TypeVar("Result")


class TakenStep(NamedTuple, Generic[Answer]):
    """A step that was taken, and its answer, under way or done."""

    step: int
    body: Any
    answer: "asyncio.Future[Answer]"


@dataclass(eq=False)
class HeldSequence(Generic[Answer]):
    """One open sequence."""

    options: SequenceOptions
    opened_with: Any
    """The request that opened it, to recognise a repetition."""
    prompt_length: int
    cached: Sequence
    length: int
    """Number of committed tokens; `cached.tokens` may have proposed tokens after them."""
    is_open: bool = True
    is_spare: bool = False
    """Whether no call waits for it: it is kept only in case it is requested again, and is closed first to make room."""
    touched_at: float = 0.0
    """When a call last used it, or was last seen working on it, by the store's clock."""
    last_step: int = -1
    used_step: int = -1
    """The last step of a run, if one was given: the draws of all its steps are used."""
    last_body: Any = None
    answer: "asyncio.Future[Answer] | None" = field(default=None, repr=False)
    before: "TakenStep[Answer] | None" = field(default=None, repr=False)
    """The step before the last one, if the process went on to that by itself: its answer may have been lost."""
    is_ahead: bool = False
    """Whether the process went on to the last step by itself, and its call has not come yet."""
    prefill: "asyncio.Task[None] | None" = field(default=None, repr=False)
    """Work before the first call. The sequence must not change until it is done."""
    waiting: list[WaitingCall[Answer]] = field(default_factory=list, repr=False)
    """Calls that depend on the answer that is being computed. The device thread may read a copy."""
    begun: Begun | None = field(default=None, repr=False)
    """What the device thread went on to by itself, until the last step has its answer and the next one takes it over.
    """
    own_proposal: Any = field(default=None, repr=False)
    """What a target that drafts itself proposed with its last verdict."""
    work: "asyncio.Future[None] | None" = field(default=None, repr=False)
    """The engine's work for a call that began before its task first ran; cancelled with the sequence."""

    grammar: GrammarState | None = field(default=None, repr=False)
    """Where its output stands in its structured output; None without one, and where none can be followed."""

    _named: NamedTokens | None = field(default=None, repr=False)
    _counts: OutputCounts = field(default_factory=OutputCounts, repr=False)
    _index: TokenIndex = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._index = TokenIndex(self.options.encoder_ids)

    def index(self) -> TokenIndex:
        """An index of the committed tokens, with what the encoder reads before them; updated at each call. Event loop
        only."""
        self._index.follow(self.cached.tokens, self.length)
        return self._index

    def row_block(self, row_count: int, device: torch.device) -> RowBlock:
        """The data to apply the options to the logits after the last `row_count` tokens. For the device thread."""
        sampling = self.options.sampling
        if self._named is None:
            self._named = NamedTokens.of(sampling, self.cached.tokens[: self.prompt_length], device)
        return RowBlock(sampling, self._named, self.cached.tokens, self.prompt_length, row_count, self._counts)

    def row_blocks(self, parents: Several[int] | None, row_count: int, device: torch.device) -> list[RowBlock]:
        """The same for the rows of a tree with these parents, each of which has seen its own path alone; None for a
        chain. One block for all where the options change no logit."""
        whole = self.row_block(row_count, device)
        if parents is None or not self.options.sampling.adjusts_logits:
            return [whole]
        before, tree = whole.tokens[: -len(parents)], whole.tokens[-len(parents) :]
        paths: list[list[int]] = [[]]
        for token, parent in zip(tree, parents, strict=True):
            paths.append([*paths[1 + parent], token])
        return [whole._replace(tokens=[*before, *path], row_count=1) for path in paths]

    def branch(self, cached: Sequence) -> "HeldSequence[Answer]":
        """A sequence that is not open, with the same options and prompt, for work on other tokens after the prompt."""
        branch: HeldSequence[Answer] = HeldSequence(
            self.options, None, self.prompt_length, cached, len(cached.tokens), is_open=False, grammar=self.grammar
        )
        branch._named = self._named
        return branch

    def cut(self, length: int) -> None:
        """Rolls back to `length` tokens. Dropped tokens of the prompt count as output if they are added again."""
        self.length = length
        self._index.truncate(length)
        if length < self.prompt_length:
            self.prompt_length = length
            self._named = None

    def call_after(self, step: int, answer: Any) -> WaitingCall[Answer] | None:
        """The first call that waits for this answer of the step. For the device thread, too."""
        return self._call_after(step, answer, is_last_resort=False)

    def has_waiting(self, step: int) -> bool:
        """Whether calls wait for some answer of the step. For the device thread, too."""
        return any(call.condition.step == step and not call.is_last_resort for call in tuple(self.waiting))

    def last_resort(self, step: int, answer: Any) -> WaitingCall[Answer] | None:
        """The call that may follow this answer of the step if no other one does. For the device thread, too."""
        return self._call_after(step, answer, is_last_resort=True)

    def _call_after(self, step: int, answer: Any, *, is_last_resort: bool) -> WaitingCall[Answer] | None:
        for call in tuple(self.waiting):
            if call.is_last_resort is not is_last_resort or call.condition.step != step:
                continue
            if call.condition.is_met_by(answer):
                return call
        return None

    @property
    def last(self) -> "TakenStep[Answer] | None":
        """The last step; None if it has no answer any more."""
        return None if self.answer is None else TakenStep(self.last_step, self.last_body, self.answer)

    @property
    def is_busy(self) -> bool:
        return self.begun is not None or (self.answer is not None and not self.answer.done())

    @property
    def is_under_work(self) -> bool:
        """Whether it is busy, or working before its first call."""
        return self.is_busy or (self.prefill is not None and not self.prefill.done())


async def settled(held: HeldSequence[Any]) -> None:
    """Waits until the prefill is done. If it failed, the call that needs it will fail."""
    if held.prefill is not None and not held.prefill.done():
        await asyncio.wait([held.prefill])


async def wait_for_answer(task: "asyncio.Future[Result]", sequence_id: str) -> Result:
    """Returns the result of a task or future; a task goes on if the caller is cancelled.

    Raises SequenceNotFoundError if the sequence was closed.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise SequenceNotFoundError(sequence_id) from None
        raise
