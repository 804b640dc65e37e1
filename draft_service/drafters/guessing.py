"""The draft model, itself accelerated: the tokens that it may draw are guessed, and several rows come of one pass.

Each token is drawn as it is without guesses, from the model's own row and by the same random number; a guess that
equals it has saved a pass, because the row after it is there already. So the proposal is the chain that the model draws
anyway, and guesses change its speed alone (Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", section 6: a draft that is itself accelerated). A guess is certain, and of a certain one the token rule
accepts as much: the probability that the model gives it.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from draft_service.drafters.model import ProposeWork
from specpair.drafting import draw_next
from specpair.engine.failures import check_device
from specpair.engine.work import Work
from specpair.options import OwnDraft
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.prediction import Predictor
from specpair.speculation.prompt_lookup import LookupPredictor

log = logging.getLogger(__name__)

MIN_CONTEXT = 2
"""Tokens of context that n-grams must have seen before: a row for a worse guess is wasted."""


@dataclass
class GuessCounts:
    """What became of guesses. Written by the device thread alone."""

    guessed: int = 0
    accepted: int = 0
    seconds: float = 0.0
    """Time that guessing took."""


class Guesser(Protocol):
    """Guesses what the draft model draws. A guess may be anything: it changes the speed alone."""

    @property
    def name(self) -> str: ...

    def predictor(self, held: HeldSequence[Any]) -> Predictor | None:
        """What a call needs of the committed tokens; they do not change while the call is worked on. Event loop
        only."""
        ...

    def guess(self, works: list["GuessingWork"]) -> Sequence[list[int] | None]:
        """For each work at most `work.most_guesses` tokens that may come next; with `count` 0 a work only reads its
        sequence. None for a work whose sequence is still being read: it is asked for again before the next pass. Takes
        a bounded time. Device thread only."""
        ...


@dataclass(frozen=True, kw_only=True)
class Guessing:
    """How the tokens of the draft model are guessed."""

    by: Guesser
    most: int
    """Guesses of one pass, at most."""
    counts: GuessCounts = field(default_factory=GuessCounts)


class TextGuesser:
    """Guesses from the text so far."""

    def __init__(self, by: OwnDraft):
        self.name = by.value
        self._make = PREDICTORS[by]

    def predictor(self, held: HeldSequence[Any]) -> Predictor:
        return self._make(held)

    def guess(self, works: list["GuessingWork"]) -> list[list[int]]:
        return [likeliest_chain(work) for work in works]


PREDICTORS: dict[OwnDraft, Callable[[HeldSequence[Any]], Predictor]] = {
    OwnDraft.NGRAM: lambda held: NgramPredictor(held.index(), min_context=MIN_CONTEXT),
    OwnDraft.PROMPT_LOOKUP: lambda held: LookupPredictor(held.index()),
}


def likeliest_chain(work: "GuessingWork") -> list[int]:
    """The heaviest token of each best prediction, for as long as there is one."""
    chain: list[int] = []
    while work.predictor is not None and len(chain) < work.most_guesses:
        best = next(iter(work.predictor.after([*work.tokens, *chain])), None)
        if best is None:
            break
        chain.append(max(zip(best.weights, best.token_ids, strict=True), key=lambda pair: pair[0])[1])
    return chain


@dataclass(eq=False, kw_only=True)
class GuessingWork(ProposeWork):
    """The work for a call whose tokens are guessed: one row after the tokens so far, and one after each guess. With
    `count` 0 it reads the sequence, and the guesser does too."""

    guessing: Guessing
    predictor: Predictor | None = None
    is_ready: bool = False
    """Whether the guesses for its next pass are made."""
    fed: list[int] = field(default_factory=list)
    """The guesses that the next pass feeds; the sequence has them at its end."""
    guess_count: int = 0
    accepted_guess_count: int = 0
    pass_count: int = 0

    @property
    def most_guesses(self) -> int:
        """The most guesses for the next pass. The last token needs none: nothing is drawn after it."""
        return max(0, min(self.guessing.most, self.count - len(self.tokens) - 1))

    def feed(self, guesses: list[int]) -> None:
        """Has the next pass feed these guesses."""
        self.fed, self.is_ready = guesses, True
        self.sequence.tokens += guesses
        self.row_count = min(1, self.count) + len(guesses)

    def take_back(self) -> int:
        """Removes the guesses from the sequence; returns its length then."""
        tokens = self.sequence.tokens
        del tokens[len(tokens) - len(self.fed) :]
        return len(tokens)

    def has_row(self, level: int) -> bool:
        """Whether the token that was drawn last has its row already."""
        return not self.done and level < len(self.fed) and self.tokens[-1] == self.fed[level]

    def settle(self, length: int) -> None:
        """Counts the pass, which began after `length` tokens. What the cache holds of wrong guesses is no longer
        valid."""
        accepted = 0
        for drawn, guess in zip(self.sequence.tokens[length:], self.fed, strict=False):
            if drawn != guess:
                break
            accepted += 1
        self.sequence.valid_length = min(self.sequence.valid_length, length + accepted)
        self.pass_count += 1
        self.guess_count += len(self.fed)
        self.accepted_guess_count += accepted
        self.guessing.counts.guessed += len(self.fed)
        self.guessing.counts.accepted += accepted
        self.fed, self.row_count, self.is_ready = [], 1, False


def make_ready(works: list[Work]) -> None:
    """Makes the guesses of all works that have none yet for their next pass, together."""
    waiting = [work for work in works if isinstance(work, GuessingWork) and not work.is_ready]
    if not waiting:
        return
    guessing, started = waiting[0].guessing, time.perf_counter()  # a service has one way to guess
    for work, guesses in zip(waiting, guesses_of(guessing.by, waiting), strict=True):
        if guesses is not None:
            work.feed(guesses)
    guessing.counts.seconds += time.perf_counter() - started


def guesses_of(guesser: Guesser, works: list[GuessingWork]) -> Sequence[list[int] | None]:
    """What is guessed; nothing if that fails: the model draws without."""
    try:
        return guesser.guess(works)
    except Exception as error:
        check_device(error)
        log.exception("guessing tokens of the draft failed")
        return [[] for _ in works]


def advance_guessing(works: list[GuessingWork], logits: Tensor) -> None:
    """Goes on with works from their rows `[sum of row counts, vocabulary]`: as many tokens as were guessed, and one
    more."""
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    lengths = [work.take_back() for work in works]
    going, level = works, 0
    while going:
        draw_next(going, torch.stack([rows[work][level] for work in going]))
        going = [work for work in going if work.has_row(level)]
        level += 1
    for work, length in zip(works, lengths, strict=True):
        work.settle(length)
