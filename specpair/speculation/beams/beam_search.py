"""Beam search, one token at a time, from the likeliest tokens after each beam.

The steps are those of transformers' beam search, in float32 as there: of all continuations the best
are looked at; those that end are finished if they are among the first num_beams; the best of the others run on.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specpair.speculation.beams.beam_options import BeamOptions, EarlyStopping
from specpair.speculation.beams.single_precision import single


class Continuation(NamedTuple):
    """A token that may follow a beam."""

    token: int
    logprob: float
    """A float32 number."""


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Tokens of the output, with the sum of their logprobs; for a finished beam, with its score."""

    tokens: tuple[int, ...]
    score: float


class BeamSearch:
    """One search. Take the likeliest tokens after each of the `running` beams, and `step`, until it `is_over`."""

    def __init__(self, options: BeamOptions):
        self._options = options
        self.running: tuple[Beam, ...] = (Beam(tokens=(), score=0.0),)
        """Best first. All have the same length."""
        self.finished: tuple[Beam, ...] = ()
        """Best first, at most num_beams."""
        self.is_over = False

    @property
    def length(self) -> int:
        """Tokens of each running beam."""
        return len(self.running[0].tokens) if self.running else 0

    def step(self, rows: Sequence[Sequence[Continuation]]) -> None:
        """Adds a token to every running beam. `rows` has, for each of them, its `top_count` likeliest tokens."""
        options, length = self._options, self.length + 1
        best = self._best(rows)
        ends = [length >= options.max_tokens or beam.tokens[-1] in options.stop_token_ids for beam in best]
        ended = [beam for beam, end in zip(best[: options.num_beams], ends, strict=False) if end]
        self._finish(ended, length)
        self.running = tuple(beam for beam, end in zip(best, ends, strict=True) if not end)[: options.num_beams]
        self.is_over = not self.running or self._is_decided(length)

    def _best(self, rows: Sequence[Sequence[Continuation]]) -> list[Beam]:
        """The best continuations of all running beams, best first; ties go to the better beam."""
        options = self._options
        barred = options.stop_token_ids if self.length < options.min_tokens else frozenset[int]()
        found = (
            (single(beam.score + logprob), number, token)
            for number, (beam, row) in enumerate(zip(self.running, rows, strict=True))
            for token, logprob in row
            if token not in barred
        )
        best = heapq.nlargest(options.kept_count, found, key=lambda one: one[0])  # as stable as sorting
        return [Beam(tokens=(*self.running[number].tokens, token), score=score) for score, number, token in best]

    def _finish(self, ended: Sequence[Beam], length: int) -> None:
        options = self._options
        divisor = single(length**options.length_penalty)
        scored = [Beam(tokens=beam.tokens, score=single(beam.score / divisor)) for beam in ended]
        merged = sorted((*self.finished, *scored), key=lambda beam: -beam.score)
        self.finished = tuple(merged[: options.num_beams])

    def _is_decided(self, length: int) -> bool:
        """Whether the finished beams are the result, though beams are running."""
        options = self._options
        if len(self.finished) < options.num_beams:
            return False
        if options.early_stopping is EarlyStopping.FIRST or options.num_beams == 1:
            return True  # a single beam is greedy decoding, which ends with its first stop token
        grows = options.early_stopping is EarlyStopping.NEVER and options.length_penalty > 0
        divisor = single((options.max_tokens if grows else length) ** options.length_penalty)
        return single(self.running[0].score / divisor) <= self.finished[-1].score
