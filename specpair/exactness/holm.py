"""Correction for multiple tests, so that one level holds for all of them."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values: the probability of any false alarm among those below alpha is at most alpha.

    Holm, "A simple sequentially rejective multiple test procedure" (1979); the tests may depend on each other.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = largest
    return corrected
