"""Draft and target without models or network, for faults that real services do not produce on demand.

Their language is a function of the history, so every correct run gives the same tokens whatever goes wrong.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from coordinator.peers.answers import Proposed, Scores, Verdict
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.target_peer import TargetPeer
from specpair.errors import (
    BaseLengthMismatchError,
    ConflictingBodyError,
    LengthNotReachedError,
    PeerUnavailableError,
    SequenceNotFoundError,
    StaleStepError,
)
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import SamplingOptions, SequenceOptions
from specpair.rpc.status import TRANSPORT_CODE
from specpair.v1.logprobs_pb2 import TokenLogprobs
from specpair.v1.proposal_pb2 import Proposal

VOCAB_SIZE = 97
FORWARD_US = 10


def next_token(history: Sequence[int], seed: int = 0) -> int:
    """What the target says after a history."""
    return (sum(history[-3:]) * 7 + len(history) + seed) % VOCAB_SIZE


def continuation(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """What the target alone generates."""
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history, seed))
    return history[len(prompt) :]


def logprob(position: int, token_id: int) -> float:
    """What the target makes of a token; later ones of a text get less, so that every entry can be told apart."""
    return -(position + token_id / VOCAB_SIZE)


def token_logprobs(position: int, token_id: int, top_count: int) -> TokenLogprobs:
    top = range(top_count)
    return TokenLogprobs(
        logprob=logprob(position, token_id), top_token_ids=top, top_logprobs=[logprob(position, t) for t in top]
    )


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
    options: SequenceOptions
    last_step: int = -1
    last_body: object = None
    answer: object = None
    is_busy: bool = False

    @property
    def seed(self) -> int:
        return self.options.sampling.seed

    async def work(self, seconds: float) -> None:
        """The time of a call, in which the sequence can be neither forked nor asked again."""
        self.is_busy = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.is_busy = False


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

    def __init__(self, info: ModelInfo, address: str = "fake:1") -> None:
        self.model = info
        self.address = address
        self.speaks_tls = False
        self.is_serving = True
        """What its health says; `say_health` tells of a change."""
        self.is_dead = False
        self._health_changed = asyncio.Event()
        self.held: dict[str, Held] = {}
        self.names: list[str] = []
        """Of every opening and fork."""
        self.opened: list[tuple[list[int], int]] = []
        """Tokens and prompt length of every opening."""
        self.options: list[SequenceOptions] = []
        """What every opening said."""
        self.steps: list[int] = []
        """Step of every hot call."""
        self.forked: list[int] = []
        """Length of every fork."""
        self.open_faults = Faults()
        self.fork_faults = Faults()
        self.faults = Faults()
        self.info_delay = 0.0
        self.open_delay = 0.0
        self.fork_delay = 0.0
        """On the way to the process."""
        self.delay = 0.0
        """Of every hot call, in the process."""

    def restart(self) -> None:
        """A new process: nothing is known any more."""
        self.held.clear()
        self.model = model_info(self.model.instance_id + "+", max_model_len=self.model.max_model_len)

    async def health(self) -> AsyncGenerator[bool, None]:
        while True:
            self._health_changed.clear()
            if self.is_dead:
                raise PeerUnavailableError("the connection broke")
            yield self.is_serving
            await self._health_changed.wait()

    def die(self) -> None:
        """The process is gone, and its connections with it."""
        self.is_dead = True
        self._health_changed.set()

    def say_health(self, *, is_serving: bool) -> None:
        self.is_serving = is_serving
        self._health_changed.set()

    async def info(self, within: float) -> ModelInfo:
        await travel(self.info_delay, within)
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
        await travel(self.open_delay, within)
        index = self.open_faults.begin()
        self.names.append(sequence_id)
        body = (tuple(token_ids), prompt_length, options)
        if sequence_id in self.held and self.held[sequence_id].opened_with != body:
            raise ConflictingBodyError("open with another body")
        self.held.setdefault(sequence_id, Held(list(token_ids), body, options))
        self.opened.append((list(token_ids), prompt_length))
        self.options.append(options)
        self.open_faults.end(index)
        return self.model.instance_id

    async def fork(
        self, sequence_id: str, forked_sequence_id: str, length: int, sampling: SamplingOptions, within: float
    ) -> str:
        await travel(self.fork_delay, within)
        index = self.fork_faults.begin()
        self.names.append(forked_sequence_id)
        held = self.held.get(sequence_id)
        if held is None:
            raise SequenceNotFoundError(sequence_id)
        if held.is_busy:
            raise StaleStepError("under way")
        if length > len(held.tokens):
            raise LengthNotReachedError(length, len(held.tokens))
        options = replace(held.options, sampling=sampling)
        self.held[forked_sequence_id] = Held(held.tokens[:length], (sequence_id, length, sampling), options)
        self.forked.append(length)
        self.fork_faults.end(index)
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


async def travel(seconds: float, within: float) -> None:
    """The way to a process, which may take longer than the call has."""
    await asyncio.sleep(min(seconds, within))
    if seconds > within:
        raise PeerUnavailableError("out of time", **{TRANSPORT_CODE: "DEADLINE_EXCEEDED"})


def resized(entries: list[TokenLogprobs], extra: int) -> list[TokenLogprobs]:
    """So many entries more, or fewer."""
    return [*entries, *entries][: len(entries) + extra]


class FakeTarget(FakeSequences, TargetPeer):
    """Accepts what it would have said itself."""

    def __init__(self, info: ModelInfo, address: str = "fake:1") -> None:
        super().__init__(info, address)
        self.score_faults = Faults()
        self.score_delay = 0.0
        self.extra_logprobs = 0
        """Entries sent beyond what was committed or scored; fewer where it is negative."""

    async def score(self, token_ids: Sequence[int], top_count: int, within: float) -> Scores:
        await travel(self.score_delay, within)
        index = self.score_faults.begin()
        entries = [token_logprobs(i, token_id, top_count) for i, token_id in enumerate(token_ids)]
        self.score_faults.end(index)
        return Scores(instance_id=self.model.instance_id, logprobs=resized(entries[1:], self.extra_logprobs))

    async def verify(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        proposal: Proposal | None,
        within: float,
        include_probabilities: bool = False,
    ) -> Verdict:
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        await held.work(min(self.delay, within))
        if self.delay > within:
            raise PeerUnavailableError(f"the peer did not answer within {within:g} s", timeout=within)
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
        while accepted_count < len(drafted) and drafted[accepted_count] == next_token(tokens, held.seed):
            tokens.append(drafted[accepted_count])
            accepted_count += 1
        tokens.append(next_token(tokens, held.seed))
        assert len(tokens) <= self.model.max_model_len
        held.tokens = tokens
        return Verdict(
            accepted_count=accepted_count,
            next_token_id=tokens[-1],
            compute_time_us=FORWARD_US,
            elapsed_us=FORWARD_US + 1,
            logprobs=self._logprobs(held, base_length),
        )

    def _logprobs(self, held: Held, base_length: int) -> list[TokenLogprobs]:
        if held.options.logprobs is None:
            return []
        committed = range(base_length, len(held.tokens))
        entries = [token_logprobs(i, held.tokens[i], held.options.logprobs) for i in committed]
        return resized(entries, self.extra_logprobs)


class FakeDraft(FakeSequences, DraftPeer):
    """Says what the target says, but is wrong at every fifth position."""

    def __init__(self, info: ModelInfo, address: str = "fake:1") -> None:
        super().__init__(info, address)
        self.counts: list[int] = []
        """Tokens asked for, call by call."""
        self.extra_count = 0
        """Tokens proposed beyond what was asked."""
        self.knows_nothing = False
        """Whether it answers without a token."""

    async def propose(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        within: float,
        min_confidence: float = 0.0,
    ) -> Proposed:
        index = self.faults.begin()
        held = self.locate(sequence_id, step, base_length)
        await held.work(self.delay)
        self.counts.append(count)
        tokens = [*held.tokens[:base_length], *appended]
        held.tokens = list(tokens)
        held.last_step = step
        proposal = Proposal()
        for _ in range(0 if self.knows_nothing else count + self.extra_count):
            tokens.append((next_token(tokens, held.seed) + (len(tokens) % 5 == 0)) % VOCAB_SIZE)
            proposal.token_ids.append(tokens[-1])
        self.faults.end(index)
        return Proposed(proposal=proposal, compute_time_us=FORWARD_US, elapsed_us=FORWARD_US + 2)
