"""Draft and target without models or network, for faults that real services do not produce on demand.

Their language is a function of the history, so every correct run gives the same tokens whatever goes wrong.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.peer import DraftPeer, Proposed, TargetPeer, Verdict
from specpair.errors import BaseLengthMismatchError, ConflictingBodyError, SequenceNotFoundError, StaleStepError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import SequenceOptions
from specpair.v1.proposal_pb2 import Proposal

VOCAB_SIZE = 97
FORWARD_US = 10


def next_token(history: Sequence[int]) -> int:
    """What the target says after a history."""
    return (sum(history[-3:]) * 7 + len(history)) % VOCAB_SIZE


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """What the target alone generates."""
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history))
    return history[len(prompt) :]


def model_info(instance_id: str = "first", *, max_model_len: int = 200, **changes: object) -> ModelInfo:
    values: dict[str, object] = {
        "instance_id": instance_id,
        "model_name": "fake",
        "architecture": "Fake",
        "parameter_count": 1,
        "vocab_size": VOCAB_SIZE,
        "max_model_len": max_model_len,
        "max_num_speculative_tokens": 8,
        "max_num_seqs": 4,
        "dtype": "float32",
        "device": "cpu",
        "cache": "paged",
        "block_size": 16,
        "block_count": 8,
        "free_block_count": 8,
        "sequence_count": 0,
        "eos_token_ids": [],
        "deterministic": False,
    }
    return ModelInfo(**{**values, **changes})  # type: ignore[arg-type]


@dataclass
class Held:
    """A sequence at a fake peer."""

    tokens: list[int]
    opened_with: tuple[object, ...]
    last_step: int = -1
    last_body: object = None
    answer: object = None


@dataclass
class Faults:
    """Errors to raise at calls, counted from 0 for each kind of call."""

    before: dict[int, Exception] = field(default_factory=dict)
    """The call does nothing."""
    after: dict[int, Exception] = field(default_factory=dict)
    """The call is carried out, its answer is lost."""
    count: int = 0

    def begin(self) -> int:
        index, self.count = self.count, self.count + 1
        if index in self.before:
            raise self.before[index]
        return index

    def end(self, index: int) -> None:
        if index in self.after:
            raise self.after[index]


class FakeSequences:
    """Keeps sequences by the contract's rules and records what it is asked."""

    def __init__(self, info: ModelInfo) -> None:
        self.model = info
        self.address = "fake:1"
        self.held: dict[str, Held] = {}
        self.opened: list[tuple[list[int], int]] = []
        """Tokens and prompt length of every opening."""
        self.steps: list[int] = []
        """Step of every hot call."""
        self.open_faults = Faults()
        self.faults = Faults()
        self.open_delay = 0.0

    def restart(self) -> None:
        """A new process: nothing is known any more."""
        self.held.clear()
        self.model = model_info(self.model.instance_id + "+", max_model_len=self.model.max_model_len)

    async def info(self, within: float) -> ModelInfo:
        return self.model

    async def tokenizer_files(self, within: float) -> TokenizerFiles | None:
        return None

    async def open(
        self,
        sequence_id: str,
        token_ids: Sequence[int],
        prompt_length: int,
        options: SequenceOptions,
        within: float,
    ) -> str:
        await asyncio.sleep(self.open_delay)
        index = self.open_faults.begin()
        body = (tuple(token_ids), prompt_length, options)
        if sequence_id in self.held and self.held[sequence_id].opened_with != body:
            raise ConflictingBodyError("open with another body")
        self.held.setdefault(sequence_id, Held(list(token_ids), body))
        self.opened.append((list(token_ids), prompt_length))
        self.open_faults.end(index)
        return self.model.instance_id

    async def close_sequence(self, sequence_id: str, within: float) -> None:
        self.held.pop(sequence_id, None)

    async def close(self) -> None:
        """Nothing to end."""

    def locate(self, sequence_id: str, step: int, base_length: int) -> Held:
        self.steps.append(step)
        held = self.held.get(sequence_id)
        if held is None:
            raise SequenceNotFoundError(sequence_id)
        if step < held.last_step:
            raise StaleStepError("past", last_step=held.last_step)
        if step > held.last_step and base_length > len(held.tokens):
            raise BaseLengthMismatchError(base_length, len(held.tokens))
        return held


class FakeTarget(FakeSequences, TargetPeer):
    """Accepts what it would have said itself."""

    async def verify(
        self, sequence_id: str, step: int, base_length: int, proposal: Proposal | None, within: float
    ) -> Verdict:
        index = self.faults.begin()
        await asyncio.sleep(0)
        held = self.locate(sequence_id, step, base_length)
        drafted = [] if proposal is None else list(proposal.token_ids)
        if step == held.last_step:
            if held.last_body != (base_length, drafted):
                raise ConflictingBodyError("another body")
        else:
            held.answer = self._judge(held, base_length, drafted)
            held.last_step, held.last_body = step, (base_length, drafted)
        self.faults.end(index)
        assert isinstance(held.answer, Verdict)
        return held.answer

    def _judge(self, held: Held, base_length: int, drafted: list[int]) -> Verdict:
        tokens = held.tokens[:base_length]
        accepted_count = 0
        while accepted_count < len(drafted) and drafted[accepted_count] == next_token(tokens):
            tokens.append(drafted[accepted_count])
            accepted_count += 1
        tokens.append(next_token(tokens))
        assert len(tokens) <= self.model.max_model_len
        held.tokens = tokens
        return Verdict(
            accepted_count=accepted_count,
            next_token_id=tokens[-1],
            compute_time_us=FORWARD_US,
            elapsed_us=FORWARD_US + 1,
        )


class FakeDraft(FakeSequences, DraftPeer):
    """Says what the target says, but is wrong at every fifth position."""

    def __init__(self, info: ModelInfo) -> None:
        super().__init__(info)
        self.counts: list[int] = []
        """Tokens asked for, call by call."""
        self.extra_count = 0
        """Tokens proposed beyond what was asked."""
        self.delay = 0.0

    async def propose(
        self, sequence_id: str, step: int, base_length: int, appended: Sequence[int], count: int, within: float
    ) -> Proposed:
        index = self.faults.begin()
        await asyncio.sleep(self.delay)
        held = self.locate(sequence_id, step, base_length)
        self.counts.append(count)
        tokens = [*held.tokens[:base_length], *appended]
        held.tokens = list(tokens)
        held.last_step = step
        proposal = Proposal()
        for _ in range(count + self.extra_count):
            tokens.append((next_token(tokens) + (len(tokens) % 5 == 0)) % VOCAB_SIZE)
            proposal.token_ids.append(tokens[-1])
        self.faults.end(index)
        return Proposed(proposal=proposal, compute_time_us=FORWARD_US, elapsed_us=FORWARD_US + 2)
