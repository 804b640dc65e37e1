"""The sequences of a model service without a model or a network, by the contract's rules."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

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
from tests.unit.coordinator.fake_language import VOCAB_SIZE


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
        "goes_on_plain": True,
        "eos_token_ids": [],
        "deterministic": False,
    }
    return ModelInfo(**{**values, **changes})  # type: ignore[arg-type]


@dataclass
class Held:
    """A sequence at a fake peer."""

    tokens: list[int]
    opened_with: tuple[object, ...]
    used_step: int = field(default=-1, kw_only=True)
    """The last step of a run."""
    options: SequenceOptions
    last_step: int = -1
    last_body: object = None
    answer: object = None
    is_busy: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of each call."""

    @property
    def seed(self) -> int:
        return self.options.sampling.seed

    async def work(self, seconds: float) -> None:
        """The time of a call, in which the sequence can be neither forked nor asked again."""
        self.is_busy = True
        self.idle.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.is_busy = False
            self.idle.set()


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
