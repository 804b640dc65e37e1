"""Applies the options of a request to a prediction.

A prediction has no logits, so the options are applied to its weights, in the order of `sampling`: forbidden tokens,
logit bias, temperature, min-p, top-k, top-p. This affects only acceptance, not exactness: the result is what is sent
and drawn from. Penalties are left out, because they need counts of the whole output.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import NamedTuple

from specpair.options import SamplingOptions
from specpair.speculation.prediction import Prediction


class Candidates(NamedTuple):
    """The tokens that may be drawn."""

    token_ids: Sequence[int]
    """[S], at least one."""
    weights: Sequence[float]
    """[S]; the largest is above 0."""


class Shaping:
    """The options of one request over the token ids below `vocab_size`."""

    def __init__(self, options: SamplingOptions, vocab_size: int):
        self._options = options
        self._vocab_size = vocab_size
        self._lists = bool(options.allowed_token_ids or options.banned_token_ids)
        self._biases = dict(options.logit_bias)
        self._cuts = options.min_p > 0.0 or options.top_k > 0 or options.top_p < 1.0

    def holds_back_stops(self, output_length: int) -> bool:
        """Whether stop tokens are forbidden after `output_length` tokens of output."""
        return output_length < self._options.min_tokens and bool(self._options.stop_token_ids)

    def shape(self, prediction: Prediction, holds_back_stops: bool) -> Candidates | None:
        """The candidates that the options leave of a prediction; None if there are none."""
        left = Candidates(prediction.token_ids, prediction.weights)
        if self._lists or holds_back_stops or max(prediction.token_ids) >= self._vocab_size:
            left = self._permitted(left, holds_back_stops)
            if not left.token_ids:
                return None
        if self._biases:
            left = self._biased(left)
        if self._options.is_greedy:
            return Candidates((left.token_ids[left.weights.index(max(left.weights))],), (1.0,))
        if self._options.temperature != 1.0:
            left = _tempered(left, self._options.temperature)
        return self._cut(left) if self._cuts else left

    def _permitted(self, candidates: Candidates, holds_back_stops: bool) -> Candidates:
        """The candidates that may be drawn."""
        pairs = [pair for pair in zip(*candidates, strict=True) if self._may_come(pair[0], holds_back_stops)]
        return Candidates([token for token, _ in pairs], [weight for _, weight in pairs])

    def _may_come(self, token: int, holds_back_stops: bool) -> bool:
        options = self._options
        if token >= self._vocab_size or _holds(options.banned_token_ids, token):
            return False
        if holds_back_stops and _holds(options.stop_token_ids, token):
            return False
        return not options.allowed_token_ids or _holds(options.allowed_token_ids, token)

    def _biased(self, candidates: Candidates) -> Candidates:
        factors = [exp(self._biases.get(token, 0.0)) for token in candidates.token_ids]
        weights = [weight * factor for weight, factor in zip(candidates.weights, factors, strict=True)]
        return Candidates(candidates.token_ids, weights)

    def _cut(self, candidates: Candidates) -> Candidates:
        """The candidates that min-p, top-k and top-p leave, the heaviest first; equally heavy ones keep their order."""
        options = self._options
        pairs = sorted(zip(*candidates, strict=True), key=lambda pair: -pair[1])
        least = options.min_p * pairs[0][1]
        pairs = [pair for pair in pairs if pair[1] >= least][: options.top_k or None]
        mass = list(accumulate(weight for _, weight in pairs))
        # As many as needed to reach top_p of the remaining mass.
        pairs = pairs[: bisect_left(mass, options.top_p * mass[-1]) + 1]
        return Candidates([token for token, _ in pairs], [weight for _, weight in pairs])


def _tempered(candidates: Candidates, temperature: float) -> Candidates:
    """Weights to the power of 1 / T, relative to the largest, so that they cannot all become 0."""
    heaviest = max(candidates.weights)
    return Candidates(
        candidates.token_ids, [(weight / heaviest) ** (1.0 / temperature) for weight in candidates.weights]
    )


def _holds(listed: Sequence[int], token: int) -> bool:
    """Whether a list in ascending order has the token."""
    place = bisect_left(listed, token)
    return place < len(listed) and listed[place] == token
