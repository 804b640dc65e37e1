"""A second, still smaller model that guesses what the draft model draws: a draft of the draft.

It runs on the draft's device thread, before the draft's passes, and proposes for all waiting works together. It draws
by the random numbers by which the draft will draw, so that both often draw the same. Its own sequences follow those of
the draft: what the draft rolls back, they do.
"""

import asyncio
from typing import Any

import torch
from tokenizers import Tokenizer

from draft_service.drafters.guessing import GuessingWork
from draft_service.drafters.model import ProposeWork, advance
from specpair.engine.host import ModelHost
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.errors import ModelRefusedError
from specpair.model_info import TokenizerFiles
from specpair.models.load_runner import load_runner
from specpair.models.model_facts import ModelFacts
from specpair.models.parallel_work import claim_parallel_work, leave_parallel_work
from specpair.models.runner import Runner
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence

RECENT = 64
"""Tokens at the end of a sequence within which it usually changed."""


class SecondModel:
    """The smaller model with its sequences. Device thread only."""

    def __init__(
        self, facts: ModelFacts, runner: Runner, loop: asyncio.AbstractEventLoop, *, token_budget: int, short: int
    ):
        self.name = facts.display_name
        self.cache = runner.cache
        self._longest = facts.max_model_len
        self._loop = loop
        self._short = short
        self._turns = Turns(
            runner, advance, EngineStatistics(), lambda done: None, token_budget=token_budget, short=short
        )
        self._own: dict[Sequence, Sequence] = {}
        """Those of the draft, and its own for each."""

    def predictor(self, held: HeldSequence[Any]) -> None:
        """It reads the tokens themselves."""
        return None

    def guess(self, works: list[GuessingWork]) -> list[list[int] | None]:
        """Runs as many passes as the longest guess takes. A work whose pass fails goes on without. The first pass alone
        reads prompts, as much as fits it: the draft's thread must not seem to hang. The rest is read in later calls."""
        self.forget({work.sequence for work in works})
        asked = [self._work_for(work) for work in works]
        self._turns.add([own for own in asked if own is not None])
        try:
            for _ in range(max([1, *(work.most_guesses for work in works)])):
                self._turns.turn()
                self._drop([own for own in self._turns.works if own.pending > self._short])
        finally:
            self._drop(self._turns.works)
        return [guesses_from(own, work) for work, own in zip(works, asked, strict=True)]

    def _drop(self, works: list[Work]) -> None:
        """Ends works before they are done. What they have read stays."""
        for own in works:
            own.future.cancel()
        self._turns.drop_cancelled()

    def forget(self, waiting: set[Sequence]) -> None:
        """Frees the cache of sequences without one at the draft, since they were closed, or others needed the room.
        Those that wait for guesses may not have one yet."""
        for sequence in [known for known in self._own if known.holding is None and known not in waiting]:
            self._turns.release(self._own.pop(sequence))

    def _work_for(self, work: GuessingWork) -> Work | None:
        """What to do for a work; None where nothing can be guessed."""
        wanted = work.most_guesses
        if len(work.sequence.tokens) + wanted > self._longest or (work.count and not wanted):
            return None
        sequence = self._follow(work.sequence)
        count = len(work.tokens) + wanted
        own: Work = Work(sequence=sequence, row_count=0)
        if wanted:
            held, drawn = work.held.branch(sequence), list(work.tokens)
            own = ProposeWork(sequence=sequence, row_count=1, held=held, step=work.step, count=count, tokens=drawn)
        own.future = self._loop.create_future()  # nobody cancels it, and nobody waits for it
        return own

    def _follow(self, sequence: Sequence) -> Sequence:
        """The own sequence, with the tokens of the draft's."""
        own = self._own.setdefault(sequence, Sequence([]))
        tokens = sequence.tokens
        same = min(len(own.tokens), len(tokens))
        for start in (same, max(0, same - RECENT), 0):
            if own.tokens[:start] == tokens[:start]:
                own.replace_from(start, tokens[start:])
                break
        return own


def guesses_from(own: Work | None, work: GuessingWork) -> list[int] | None:
    """What the own work has drawn for a work of the draft; None if it still reads."""
    if own is None or own.error is not None:
        return []
    drawn = own.tokens[len(work.tokens) :] if isinstance(own, ProposeWork) else []
    return drawn if drawn or own.done else None


async def load_second_model(model: str, draft: ModelHost[Any], config: EngineConfig) -> SecondModel:
    """Loads the model beside the draft's, with the memory that `config` leaves it on a GPU. Raises
    ModelRefusedError."""
    loop = asyncio.get_running_loop()
    short = draft.max_num_speculative_tokens + 2

    def load() -> SecondModel:
        threads = torch.get_num_threads()
        with torch.inference_mode(mode=False):
            facts, runner = load_runner(second_config(model, config))
        claim_parallel_work(threads)  # those of the draft model: it has more to compute
        refuse_others(facts, draft.facts)
        return SecondModel(facts, runner, loop, token_budget=draft.token_budget, short=short)

    try:
        second = await draft.engine.call(load)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"--own-draft: {error}") from error
    leave_parallel_work()
    return second


def second_config(model: str, draft: EngineConfig) -> EngineConfig:
    """How it is loaded: where the draft is, and otherwise by the defaults."""
    return EngineConfig(
        model=model,
        dtype=draft.dtype,
        device=draft.device,
        cache=draft.cache,
        block_size=draft.block_size,
        max_num_seqs=draft.max_num_seqs,
        gpu_memory_utilization=draft.gpu_memory_utilization,
    )


def refuse_others(own: ModelFacts, draft: ModelFacts) -> None:
    """Raises ModelRefusedError for a model that cannot guess for the draft."""
    if own.encoder is not None or draft.encoder is not None:
        raise ModelRefusedError("a model with an encoder has no second model, and is none")
    if own.vocab_size != draft.vocab_size:
        raise ModelRefusedError(f"it has {own.vocab_size} token ids, the draft {draft.vocab_size}")
    if own.tokenizer and draft.tokenizer and vocabulary(own.tokenizer) != vocabulary(draft.tokenizer):
        raise ModelRefusedError("its tokens are others than the draft's")


def vocabulary(files: TokenizerFiles) -> dict[str, int]:
    return Tokenizer.from_str(files.tokenizer_json.decode()).get_vocab()
