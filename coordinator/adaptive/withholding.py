"""Whether prepared proposals come without their distributions, which the draft is asked for if one is used."""

from typing import Protocol

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.running_mean import UsualMean

MEMORY = 64
"""Rounds over which the times of passes are averaged."""


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
    """Learns from the rounds of all outputs of a draft.

    Distributions are hundreds of times as long as their tokens, and few are used. But to ask for them takes the way to
    the draft and back, which costs nothing only while the target's pass, begun with the tokens, takes longer.
    """

    def __init__(self) -> None:
        self._way: float | None = None
        """Seconds of the shortest call to the draft, without what it computes: how far it is. The others say how much
        there is on the link, and where that is much, whole proposals are more."""
        self._pass = UsualMean(MEMORY)
        """Seconds for which the target works, or would, while the draft is asked."""

    @property
    def pays(self) -> bool:
        return self._way is None or self._way <= self._pass.value

    def add(self, outcome: Asking) -> None:
        """Adds a round with a proposal of that draft, unless the times of the round are unusual."""
        if not outcome.asked or not outcome.is_usual:
            return
        if (asked_for := outcome.asked_for) is not None:
            self._note(asked_for)
            self._pass.add(outcome.begun_before)
            return
        self._pass.add_usual(outcome.verify_compute)
        if outcome.ahead in (None, AheadOutcome.MISS):
            self._note(outcome.draft_way)

    def _note(self, way: float) -> None:
        self._way = way if self._way is None else min(self._way, way)
