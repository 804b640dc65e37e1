"""Metrics of proposed and accepted tokens by position."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

PREFIX = "specpair_spec_decode_num"


class PositionCollector(Collector):
    """Counts blocks by their length; the positions are summed up at each scrape."""

    def __init__(self, longest: int):
        """For blocks of at most `longest` tokens, which bounds the label."""
        self._drafted = [0] * (longest + 1)
        self._accepted = [0] * (longest + 1)

    def add(self, drafted_count: int, accepted_count: int) -> None:
        """Adds one block; both counts are at most `longest`."""
        self._drafted[drafted_count] += 1
        self._accepted[accepted_count] += 1

    def collect(self) -> Iterable[Metric]:
        """All positions from the first scrape on: `rate` does not see the first count of a new series."""
        drafted, accepted = per_position(self._drafted), per_position(self._accepted)
        yield _family("draft_tokens", "Proposed tokens by position in the proposal, from 0.", drafted)
        yield _family("accepted_tokens", "Accepted tokens by position in the proposal, from 0.", accepted)


def per_position(counts: list[int]) -> list[int]:
    """From the number of blocks with 0, 1, ... tokens, computes how many had a token at position 0, 1, ..."""
    return list(accumulate(reversed(counts[1:])))[::-1]


def _family(name: str, documentation: str, counts: list[int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}_per_pos", documentation, labels=["position"])
    for position, count in enumerate(counts):
        family.add_metric([str(position)], count)
    return family
