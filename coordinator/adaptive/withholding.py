"""Whether prepared proposals come without their distributions, which the draft is asked for if one is used."""

from typing import Protocol

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.running_mean import UsualMean

MEMORY = 64
"""Rounds over which times are averaged."""


class Asking(Protocol):
    """How long a finished round took to ask the draft, in seconds."""

    @property
    def asked(self) -> int:
        """Tokens that the draft was asked for; 0 in a plain round."""
        ...

    @property
    def is_usual(self) -> bool: ...

    @property
    def ahead(self) -> AheadOutcome | None: ...

    @property
    def draft_way(self) -> float:
        """Of the call to the draft without what it computed."""
        ...

    @property
    def asked_for(self) -> float | None:
        """Of the call for distributions that were withheld; None if none were."""
        ...

    @property
    def begun_before(self) -> float:
        """For which the target had worked before it was called."""
        ...

    @property
    def verify_compute(self) -> float: ...


class Withholding:
    """Learns from the rounds of all outputs.

    Distributions are hundreds of times as long as their tokens, and few are used. But to ask for them takes the way to
    the draft and back, which costs nothing only while the target's pass, begun with the tokens, takes longer.
    """

    def __init__(self) -> None:
        self._way = UsualMean(MEMORY)
        """Seconds of a call to the draft without what it computes."""
        self._pass = UsualMean(MEMORY)
        """Seconds for which the target works, or would, while the draft is asked."""

    @property
    def pays(self) -> bool:
        return self._way.value <= self._pass.value

    def add(self, outcome: Asking) -> None:
        """Adds a round with a proposal of a draft, unless the times of the round are unusual."""
        if not outcome.asked or not outcome.is_usual:
            return
        if (asked_for := outcome.asked_for) is not None:
            self._way.add_usual(asked_for)
            self._pass.add(outcome.begun_before)
            return
        self._pass.add_usual(outcome.verify_compute)
        if outcome.ahead in (None, AheadOutcome.MISS):
            self._way.add_usual(outcome.draft_way)
