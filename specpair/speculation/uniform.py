"""Drafting with the uniform distribution: the baseline that every other drafter must beat."""

from collections.abc import Iterator

from specpair.speculation.prediction import Prediction
from specpair.speculation.randomness import BITS, Domain, draw_bits

SUPPORT = 64
"""Tokens of a row: a whole vocabulary would make it the most expensive of all proposals."""


class UniformPredictor:
    """Predictions over a vocabulary, with the noise of one step.

    A row holds consecutive tokens from a random first one, wrapping around at the end of the vocabulary. The first
    token has its own random draw, so all tokens are proposed equally often. The row is sent, and the token is drawn
    from it.
    """

    def __init__(self, vocab_size: int, seed: int, step: int):
        self._vocab_size = vocab_size
        self._seed = seed
        self._step = step

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        bits = draw_bits(self._seed, Domain.SUPPORT, self._step, len(drafted))
        first = (bits * self._vocab_size) >> BITS
        size = min(self._vocab_size, SUPPORT)
        token_ids = [token % self._vocab_size for token in range(first, first + size)]
        yield Prediction(token_ids, [1] * size, self._vocab_size)
