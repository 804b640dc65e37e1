"""Predictions of drafters without a model, before the options of the request are applied."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class Prediction(NamedTuple):
    """Candidates for one position, with weights. Plain sequences: most hold a handful of tokens."""

    token_ids: Sequence[int]
    """[S], at least one; each token once; equally heavy ones with the best first."""
    weights: Sequence[float]
    """[S], above 0."""
    total: float
    """The total of which the weights are shares: larger than their sum if it reserves mass for other tokens."""


class Predictor(Protocol):
    """Predicts from one committed history."""

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        """Predictions for the token after the history and `drafted`, the best first; empty if nothing is known.

        A later prediction is used only if the options of the request leave no candidate of those before it. Predictions
        depend on the history, on `drafted`, and on noise that is not used elsewhere.
        """
        ...
