"""The draws below one parent, and what is left of the target's distribution after some of them were rejected.

Iterative speculative sampling (Stratos, "Speculative Decoding", section 2): after each rejected draw the residual takes
the place of the target's distribution. Only tokens that some draw could have given change their probability relative
to the others, so a residual is one factor for the vocabulary and values for a few tokens.
"""

from typing import NamedTuple

import numpy as np

from specpair.speculation.trees.drawn_tree import Draw, DrawnTree


class SiblingDraw(NamedTuple):
    """One draw."""

    node: int
    """The node that it gave."""
    place: int
    """Its token, as an index into the siblings' tokens."""
    probabilities: np.ndarray
    """[U] float64: the distribution from which it was drawn, over the siblings' tokens."""


class Siblings(NamedTuple):
    """All draws below one parent, in order."""

    token_ids: np.ndarray
    """[U] int64: the tokens that any of their distributions gives, ascending or as in the only row."""
    draws: list[SiblingDraw]


class Residual(NamedTuple):
    """The state of one node whose draws are judged in order: nothing is left of the draws that were rejected.

    With acceptance P, the distribution that the next draw is compared with is P times the normalised residual.
    """

    acceptance: float
    """P: the probability with which the node is accepted, given that everything judged before it was rejected."""
    scale: float
    """Weight of a token that no draw could have given, relative to the target's probability of it."""
    values: np.ndarray
    """[U] float64: the weights of the siblings' tokens."""
    factor: float
    """What the weights are multiplied by so that they sum to P."""

    @classmethod
    def before_draws(cls, target: np.ndarray, acceptance: float) -> "Residual":
        """`target` [U] float64: the target's probabilities of the siblings' tokens."""
        return cls(acceptance, 1.0, target, acceptance)

    def threshold(self, draw: SiblingDraw) -> float:
        """min(1, P p(x) / q(x)). It is 0 if x was drawn and rejected before: nothing is left of its probability."""
        ratio = self.values[draw.place] * self.factor / draw.probabilities[draw.place]
        return min(1.0, float(ratio))

    def without(self, draw: SiblingDraw) -> "Residual":
        """After the draw was rejected: max(P p - q, 0), with sum S, and P becomes S / (S + 1 - P). 0 / 0 counts as 1,
        as then nothing can be lost."""
        current = self.values * self.factor
        taken = np.minimum(current, draw.probabilities)
        left = max(self.acceptance - float(taken.sum()), 0.0)
        whole = left + (1.0 - self.acceptance)
        scale, values = self.scale * self.factor, current - taken
        if whole == 0.0:
            return Residual(1.0, scale, values, 1.0)
        return Residual(left / whole, scale, values, 1.0 / whole)


def siblings_by_parent(drawn: DrawnTree) -> dict[int, Siblings]:
    """The siblings below each node that has children."""
    return {parent: _siblings(drawn, draws) for parent, draws in drawn.draws_below.items()}


def _siblings(drawn: DrawnTree, draws: list[Draw]) -> Siblings:
    numbers = list(dict.fromkeys(draw.row for draw in draws))
    token_ids = _tokens(drawn, numbers)
    left = {number: _spread(drawn, number, token_ids) for number in numbers}
    judged: list[SiblingDraw] = []
    for node, row in draws:
        place = int((token_ids == drawn.tree.tokens[node]).argmax())
        judged.append(SiblingDraw(node, place, left[row]))
        if not drawn.rows[row].replaces:
            left[row] = _leave_out(left[row], place)
    return Siblings(token_ids, judged)


def _tokens(drawn: DrawnTree, numbers: list[int]) -> np.ndarray:
    """The tokens of these rows."""
    if len(numbers) == 1:
        return drawn.rows[numbers[0]].token_ids
    return np.unique(np.concatenate([drawn.rows[number].token_ids for number in numbers]))


def _spread(drawn: DrawnTree, number: int, token_ids: np.ndarray) -> np.ndarray:
    """A row over `token_ids` [U], which hold its own tokens."""
    row = drawn.rows[number]
    if row.token_ids is token_ids:
        return row.probabilities
    values = np.zeros(len(token_ids))
    values[token_ids.searchsorted(row.token_ids)] = row.probabilities
    return values


def _leave_out(probabilities: np.ndarray, place: int) -> np.ndarray:
    """The row that is left when one token was drawn without replacement; all 0 after the last one."""
    left = probabilities.copy()
    left[place] = 0.0
    total = left.sum()
    return left / total if total > 0.0 else left
