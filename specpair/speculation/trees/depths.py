"""How deep the tokens of a tree are."""

from collections.abc import Sequence


def depths(parents: Sequence[int]) -> list[int]:
    """[N] the number of tokens on the path to each token, itself included.

    `parents` holds [N] the index of each token's parent, -1 for the last committed token. A parent that does not come
    before its token counts as that: whether they make a tree is for the target to say.
    """
    found: list[int] = []
    for index, parent in enumerate(parents):
        found.append(1 + (found[parent] if 0 <= parent < index else 0))
    return found
