"""What probes cost: the tokens that all outputs together lose by them."""

import math

from coordinator.adaptive.load import Load
from coordinator.adaptive.verify_budget import RoundTimes


def price(times: RoundTimes, load: Load, joining: int, *, late: float, rows: float) -> float:
    """Tokens lost by the probes of `joining` outputs, with so many `rows` together, where who waits for them is `late`
    by so many plain rounds.

    Outputs whose next round was promised wait for nobody: the rows of the probes only lengthen their pass.
    """
    promised = promised_beside(load, joining)
    waiting = load.output_count - promised
    return waiting * late + promised * rows * times.row(load.row_count) / times.plain(load.output_count)


def expected_delay(times: RoundTimes, load: Load, joining: int) -> float:
    """Plain rounds by which a probe is late. Where others do not wait, passes begin before the draft has answered, and
    who asked it misses these."""
    plain = times.plain(load.output_count)
    if promised_beside(load, joining):
        return math.ceil(times.draft(1) / plain)
    return times.proposing(load.row_count, 1, joining) / plain - 1.0


def promised_beside(load: Load, joining: int) -> int:
    """Outputs that wait for nobody, beside those that probe."""
    return min(load.promised_count, load.output_count - joining)
