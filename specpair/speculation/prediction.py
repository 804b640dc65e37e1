"""What a drafter without a model thinks may come next, before the options of the request are applied."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class Prediction(NamedTuple):
    """Candidates for one position, with weights. Plain sequences: most hold a handful of tokens."""

    token_ids: Sequence[int]
    """[S], at least one; each token once, of equally heavy ones the best first."""
    weights: Sequence[float]
    """[S], above 0."""
    total: float
    """What the weights are shares of: more than their sum where something is set aside for what is not among them."""


class Predictor(Protocol):
    """Predicts from one committed history."""

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        """Predictions for the token behind the history and `drafted`, the best first; none if nothing is known.

        The later ones count only if the options of the request leave nothing of those before. They depend on the
        history, on `drafted`, and on noise that nothing else sees.
        """
        ...
