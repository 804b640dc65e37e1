"""What probes cost, in tokens that all outputs together lose by them, and how long they may be."""

import math

from coordinator.adaptive.load import Load
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.worth import best_length_of

HOPED = (0.95, 0.95, 0.95)
"""The most acceptance that a probe can hope to find. Where proposals would not pay even so, there are no probes: under
load a row of the target may cost as much as the token that it could save."""
PROBE_LENGTH = 4
"""Tokens of a probe, at most, and of a shadow proposal: the first ones of a usual block. The first one alone
shows only late that those after it have become better."""

SHADOW_SECONDS = 0.00005
"""What a shadow proposal takes of a processor: made, compared and learned from."""


def hoped(times: RoundTimes, output_count: int, longest: int) -> tuple[int, float]:
    """The best length and its gain, if acceptance were as high as can be hoped for; 0 and 1 if even so none pays."""
    return best_length_of(times, output_count, HOPED, longest)


def price(times: RoundTimes, load: Load, joining: int, length: int, *, late: float, rows: float) -> float:
    """Tokens lost by the probes of `joining` outputs, of `length` tokens each and with so many `rows` together, which
    are `late` by so many plain rounds.

    Others that keep step are as late as the proposals make them. Those whose next round was promised wait for nobody:
    the rows only lengthen their pass.
    """
    promised = promised_beside(load, joining)
    others_late = min(late, delay_in_step(times, load, joining, length)) if promised else late
    lost = joining * late + (load.output_count - promised - joining) * others_late
    return lost + promised * rows * times.row(load.row_count) / times.plain(load.output_count)


def shadow_price(times: RoundTimes, load: Load, joining: int) -> float:
    """Tokens lost by shadow proposals of `joining` outputs: all outputs wait for the loop that makes them."""
    return load.output_count * joining * SHADOW_SECONDS / times.plain(load.output_count)


def expected_delay(times: RoundTimes, load: Load, joining: int, length: int) -> float:
    """Plain rounds by which a probe is late. Where others do not wait, passes begin before the draft has answered, and
    who asked it misses these."""
    if promised_beside(load, joining):
        return math.ceil(times.draft(length) / times.plain(load.output_count))
    return delay_in_step(times, load, joining, length)


def delay_in_step(times: RoundTimes, load: Load, joining: int, length: int) -> float:
    """The same where all keep step: what the draft and the rows take."""
    return times.proposing(load.row_count, length, joining * length) / times.plain(load.output_count) - 1.0


def promised_beside(load: Load, joining: int) -> int:
    """Outputs that wait for nobody, beside those that probe."""
    return min(load.promised_count, load.output_count - joining)
