"""Outputs as a client received them, whichever server sent them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.measurement import Counts, Output


@dataclass(frozen=True, kw_only=True)
class Received:
    """One output as received. Times are readings of time.perf_counter."""

    token_ids: list[int]
    count: int
    """Tokens of the output. A server may leave ids out, not tokens."""
    first_count: int
    """Tokens of the first message."""
    arrivals: list[float]
    """Times of the messages that had tokens."""


def output_of(received: Sequence[Received], started: float, counts: Counts) -> Output:
    """The outputs of a turn that began at `started`."""
    first_at = min(one.arrivals[0] for one in received)
    return Output(
        token_ids=[one.token_ids for one in received],
        first_token_seconds=first_at - started,
        tokens=sum(one.count - one.first_count for one in received),
        seconds=max(one.arrivals[-1] for one in received) - first_at,
        output_seconds=sum(one.arrivals[-1] - one.arrivals[0] for one in received),
        round_seconds=[after - before for one in received for before, after in pairwise(one.arrivals)],
        counts=counts,
    )
