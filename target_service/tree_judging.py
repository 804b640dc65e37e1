"""Judges proposals that are trees of tokens. Runs on the device thread."""

import numpy as np

from target_service.accepted import Accepted
from target_service.verify_work import VerifyWork


def follow_trees(works: list[VerifyWork], choices: np.ndarray) -> Accepted:
    """Follows the target's choices, `[sum of (K + 1)]`, from the root of each tree."""
    accepted = Accepted([], [])
    first = 0
    for work in works:
        path = followed(work, choices[first : first + work.row_count].tolist())
        accepted.paths.append(path)
        accepted.next_tokens.append(int(choices[first + 1 + path[-1] if path else first]))
        first += work.row_count
    return accepted


def followed(work: VerifyWork, choices: list[int]) -> list[int]:
    """The nodes from the root on that are the choice in the row before them."""
    assert work.parents is not None
    path: list[int] = []
    node = -1
    for index, (parent, token) in enumerate(zip(work.parents, work.call.proposed, strict=True)):
        if parent == node and token == choices[1 + node]:
            path.append(index)
            node = index
    return path
