"""How likely draws from a row are to be accepted, by the row alone: for the shape of a tree, never for its verdict."""

from collections.abc import Sequence

import numpy as np

from specpair.speculation.trees.drawn_tree import Row

FIRST = 0.75
"""Chance of a first draw."""
LATER = 0.45
"""Chance of a later one, for each unit of probability that the draws before it have left."""
TYPICAL = (0.7, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.02)
"""Of the first draw at a node, the second and so on, before its row is known."""


def draw_chances(row: Row, most: int) -> Sequence[float]:
    """Of up to `most` draws without replacement, if the target comes to their parent and has taken none before."""
    masses = np.sort(row.probabilities)[::-1][:most]
    left = 1.0 - np.concatenate(([0.0], masses.cumsum()[:-1]))
    chances = np.where(np.arange(len(masses)) == 0, FIRST + (1.0 - FIRST) * masses[0], LATER * left * masses / left)
    return np.minimum(chances, 1.0).tolist()
