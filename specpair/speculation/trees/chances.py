"""How likely draws from a row are to be accepted, by what the draft knows: for the shape of a tree, never for its
verdict.

A token that holds nearly all of its row is nearly always accepted, and one that holds little is accepted more often
than its share: the draft spreads what is left about as the target does. The odds were fitted to rows of the bundled
pair and of SmolLM2 after texts that their targets sampled at T = 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from specpair.speculation.trees.drawn_tree import Row

TYPICAL = (0.5, 0.11, 0.06, 0.04, 0.03, 0.02, 0.02, 0.02)
"""Of the first draw at a node, the second and so on, before its row is known."""
_FIRST, _LATER = 1.07, 0.56
"""Odds of a first draw whose share of its row is small, and what they fall to for later ones."""
_SHARE, _REST = 0.087, -0.647
"""Exponents of a token's share, and of the rest."""
_SMALLEST_REST = 1e-3


def draw_chances(row: Row, most: int) -> Sequence[float]:
    """Of up to `most` draws without replacement, before they are made, if the target comes to their parent: that it
    goes on with the first of them, the second and so on."""
    first = float((row.probabilities * _chance(row.probabilities, 0)).sum())
    rest = (1.0 - first) / (1.0 - TYPICAL[0])
    return [first, *(rest * typical for typical in TYPICAL[1:])][: min(most, len(row.token_ids))]


def drawn_chances(row: Row, tokens: Sequence[int]) -> list[float]:
    """The same of tokens that were drawn from the row, in order, now that they are known."""
    chances: list[float] = []
    reached, left = 1.0, 1.0
    for rank, token in enumerate(tokens):
        mass = row.probability(token)
        accepted = float(_chance(min(mass / left, 1.0), rank))
        chances.append(reached * accepted)
        reached *= 1.0 - accepted
        left = max(left - mass, mass * 1e-9)
    return chances


def _chance(share: ArrayLike, rank: int) -> np.ndarray:
    """That a draw is accepted if those before it, `rank` of them, were rejected; `share` is the token's in what they
    left of the row."""
    share = np.asarray(share)
    odds = _FIRST * share**_SHARE * (1.0 - share + _SMALLEST_REST) ** _REST
    odds = odds * (_LATER / (rank + 1) if rank else 1.0)
    return odds / (1.0 + odds)
