"""Tokens per round from the chance that each token of an answer would have been accepted."""

from collections.abc import Sequence

import numpy as np


def expected_rounds(chances: np.ndarray, k: int) -> float:
    """Rounds that an answer takes, on average, if K tokens are drafted in each.

    `chances[i]` is the chance that the draft's token at i is accepted, given the token that the target's answer has
    there: 1 or 0 at temperature 0, min(1, q / p) above. If it depends on how many tokens the round drafted before it,
    `chances[j, i]` is that of the round's token j. The token after K accepted ones is always the target's.
    """
    chances = np.broadcast_to(chances, (k, chances.shape[-1])) if chances.ndim == 1 else chances
    n = chances.shape[1]
    rounds = np.zeros(n + k + 2)
    for start in range(n - 1, -1, -1):
        reached, expected = 1.0, 1.0
        for position in range(start, min(start + k, n)):
            chance = chances[position - start, position]
            expected += reached * (1 - chance) * rounds[position + 1]
            reached *= chance
        if start + k < n:
            expected += reached * rounds[start + k + 1]
        rounds[start] = expected
    return float(rounds[0])


def tokens_per_round(answers: Sequence[np.ndarray], k: int) -> float:
    """All tokens of the answers over all their expected rounds."""
    tokens = sum(chances.shape[-1] for chances in answers)
    return tokens / sum(expected_rounds(chances, k) for chances in answers)
