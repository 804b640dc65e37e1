"""What two lists of tokens have in common at their beginning."""

STRETCH = 256
"""Tokens that are compared at once: a slice takes a small part of the time of a loop over its tokens."""


def common_length(first: list[int], second: list[int]) -> int:
    """The number of tokens with which both begin."""
    shorter = min(len(first), len(second))
    for start in range(0, shorter, STRETCH):
        end = min(start + STRETCH, shorter)
        if first[start:end] != second[start:end]:
            return next(i for i in range(start, end) if first[i] != second[i])
    return shorter
