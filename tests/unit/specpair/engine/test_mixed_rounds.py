"""Passes over sequences of which some are back at once and others after a round trip, on a clock that is reckoned."""

import heapq
from dataclasses import dataclass, field
from random import Random

import pytest

from specpair.engine.gathering import Gathering
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_gathering import FollowedWork

FIXED = 0.018
"""Seconds of a pass without its rows."""
PER_SEQUENCE = 0.002
AT_ONCE = 0.0003
"""Seconds until a call that waited for the verdict is with the engine."""
PASSES = 600


@dataclass
class Device:
    """A device thread without a device."""

    sequence_count: int
    hit_rate: float
    absence: float
    """Seconds until the next call where no call waited for the verdict."""
    seed: int = 0
    gathering: Gathering = field(default_factory=Gathering)
    now: float = 0.0
    judged: int = 0
    """Verdicts so far."""
    left_behind: int = 0
    """Passes that began before a call that was there when the last one ended."""

    def run(self) -> float:
        """Verdicts per second."""
        self.random = Random(self.seed)
        self.coming = [(0.0, number, Sequence([1])) for number in range(self.sequence_count)]
        self.works: list[FollowedWork] = []
        self.at_once: set[Sequence] = set()
        for _ in range(PASSES):
            self.gather()
            self.run_pass()
        return self.judged / self.now

    def gather(self) -> None:
        self.take()
        if not self.works:
            self.now = self.coming[0][0]
            self.take()
        while (patience := self.gathering.patience(self.works, self.now)) > 0.0:
            following = self.coming[0][0] if self.coming else float("inf")
            self.now = min(following, self.now + patience)
            self.take()

    def take(self) -> None:
        """The calls that have come."""
        while self.coming and self.coming[0][0] <= self.now:
            came, _, sequence = heapq.heappop(self.coming)
            work = FollowedWork(sequence=sequence, row_count=1, submitted_at=came, follows=False)
            self.gathering.arrive([work])
            self.works.append(work)

    def run_pass(self) -> None:
        works, self.works = self.works, []
        self.left_behind += bool(self.at_once - {work.sequence for work in works})
        seconds = FIXED + PER_SEQUENCE * len(works)
        self.now += seconds
        self.gathering.add_pass(len(works), 5 * len(works), seconds)
        self.judged += len(works)
        self.at_once = set()
        for work in works:
            work.follows = self.random.random() < self.hit_rate
            away = AT_ONCE if work.is_followed else self.absence * self.random.uniform(0.8, 1.2)
            if work.is_followed:
                self.at_once.add(work.sequence)
            heapq.heappush(self.coming, (self.now + away, self.random.getrandbits(64), work.sequence))
        self.gathering.leave(works, self.now)


@pytest.mark.slow
@pytest.mark.parametrize("absence", [0.005, 0.01, 0.015])
@pytest.mark.parametrize("hit_rate", [0.3, 0.65, 0.8, 0.95])
@pytest.mark.parametrize("sequence_count", [2, 4, 8, 16])
def test_no_pass_begins_without_who_is_there(sequence_count: int, hit_rate: float, absence: float) -> None:
    device = Device(sequence_count, hit_rate, absence)
    device.run()
    assert device.left_behind == 0


@pytest.mark.few_cases(15)
@pytest.mark.parametrize("absence", [0.005, 0.01, 0.015])
@pytest.mark.parametrize("hit_rate", [0.5, 0.65, 0.8, 0.95])
@pytest.mark.parametrize("sequence_count", [1, 2, 4, 8, 16])
def test_calls_that_wait_for_the_verdict_are_a_gain_at_any_mixture(
    sequence_count: int, hit_rate: float, absence: float
) -> None:
    assert Device(sequence_count, hit_rate, absence).run() > Device(sequence_count, 0.0, absence).run()


@pytest.mark.parametrize("sequence_count", [4, 8, 16])
def test_groups_do_not_alternate_for_ever(sequence_count: int) -> None:
    """Who missed is in the pass after the next at the latest: at a hit rate of h a pass has at least 1 / (2 - h) of all
    sequences."""
    for hit_rate in (0.5, 0.8, 0.95):
        device = Device(sequence_count, hit_rate, 0.015)
        device.run()
        assert device.judged / PASSES > 0.97 * sequence_count / (2 - hit_rate)
