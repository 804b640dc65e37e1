"""Drafting without any knowledge: every token alike. The floor that every other drafter must beat."""

from collections.abc import Iterator

from specpair.speculation.prediction import Prediction
from specpair.speculation.randomness import BITS, Domain, draw_bits

SUPPORT = 64
"""Tokens of a row: a whole vocabulary would make it the dearest of all proposals."""


class UniformPredictor:
    """Predictions over a vocabulary, with the noise of one step.

    A row holds the tokens from a random one on, past the end of the vocabulary from its beginning. Where it begins is
    drawn by itself, so every token is proposed as often as any other; what is sent is the row, from which the token
    was drawn.
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
