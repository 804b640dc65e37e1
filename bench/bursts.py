"""Short work timed in bursts that take turns: each burst runs warm, and the machine's noise affects all alike."""

import random
from collections.abc import Callable, Mapping
from statistics import median

BURST = 5
"""Timings of one subject in a row, after one that does not count."""

Subject = Callable[[], float]
"""Does the work once; returns the seconds."""


def timed_in_turn(
    subjects: Mapping[str, Subject], repetitions: int, advance: Callable[[str], None], seed: int = 0
) -> dict[str, dict[tuple[int, int], float]]:
    """The median seconds of each subject's bursts, by (0, repetition). `advance` is called for each burst."""
    shuffler = random.Random(seed)
    names = list(subjects)
    medians: dict[str, dict[tuple[int, int], float]] = {name: {} for name in names}
    for repetition in range(repetitions):
        shuffler.shuffle(names)
        for name in names:
            advance(name)
            medians[name][0, repetition] = burst(subjects[name])
    return medians


def burst(subject: Subject) -> float:
    """The median of a burst's timings."""
    subject()
    return median(subject() for _ in range(BURST))
