"""The draft model, itself accelerated: the tokens that it may draw are guessed, and several rows come of one pass.

Each token is drawn as it is without guesses, from the model's own row and by the same random number; a guess that
equals it has saved a pass, because the row after it is there already. So the proposal is the chain that the model draws
anyway, and guesses change its speed alone (Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding", section 6: a draft that is itself accelerated). A guess is certain, and of a certain one the token rule
accepts as much: the probability that the model gives it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draft_service.drafters.model import ProposeWork
from specpair.drafting import draw_next
from specpair.options import OwnDraft
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.prediction import Predictor
from specpair.speculation.prompt_lookup import LookupPredictor

MIN_CONTEXT = 2
"""Tokens of context that n-grams must have seen before: a row for a worse guess is wasted."""


@dataclass
class GuessCounts:
    """What became of guesses. Written by the device thread alone."""

    guessed: int = 0
    accepted: int = 0


@dataclass(frozen=True, kw_only=True)
class Guessing:
    """How the tokens of the draft model are guessed."""

    by: OwnDraft
    most: int
    """Guesses of one pass, at most."""
    counts: GuessCounts = field(default_factory=GuessCounts)

    def predictor(self, held: HeldSequence[Any]) -> Predictor:
        """For one call. Event loop only; the index does not change while the call is worked on."""
        return PREDICTORS[self.by](held)


PREDICTORS: dict[OwnDraft, Callable[[HeldSequence[Any]], Predictor]] = {
    OwnDraft.NGRAM: lambda held: NgramPredictor(held.index(), min_context=MIN_CONTEXT),
    OwnDraft.PROMPT_LOOKUP: lambda held: LookupPredictor(held.index()),
}


@dataclass(eq=False, kw_only=True)
class GuessingWork(ProposeWork):
    """The work for a call whose tokens are guessed: one row after the tokens so far, and one after each guess."""

    guessing: Guessing
    predictor: Predictor
    fed: list[int] = field(default_factory=list)
    """The guesses that the next pass feeds; the sequence has them at its end."""
    guess_count: int = 0
    accepted_guess_count: int = 0
    pass_count: int = 0

    def guess(self) -> None:
        """Guesses what the next pass may draw. Its last token needs no guess: nothing is drawn after it."""
        most = min(self.guessing.most, self.count - len(self.tokens) - 1)
        self.fed = []
        while len(self.fed) < most:
            best = next(iter(self.predictor.after([*self.tokens, *self.fed])), None)
            if best is None:
                break
            self.fed.append(max(zip(best.weights, best.token_ids, strict=True), key=lambda pair: pair[0])[1])
        self.sequence.tokens += self.fed
        self.row_count = 1 + len(self.fed)

    def take_back(self) -> int:
        """Removes the guesses from the sequence; returns its length then."""
        tokens = self.sequence.tokens
        del tokens[len(tokens) - len(self.fed) :]
        return len(tokens)

    def has_row(self, level: int) -> bool:
        """Whether the token that was drawn last has its row already."""
        return not self.done and level < len(self.fed) and self.tokens[-1] == self.fed[level]

    def settle(self, length: int) -> None:
        """Counts the pass, which began after `length` tokens, and guesses for the next one. What the cache holds of
        wrong guesses is no longer valid."""
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
        self.fed = []
        if not self.done:
            self.guess()


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
