"""What adaptive K reads of a round."""

from typing import Protocol

from coordinator.adaptive.ahead_outcome import AheadOutcome


class RoundOutcome(Protocol):
    """A finished round. Times are in seconds.

    It says how many tokens were proposed and accepted, and how long it took, never which tokens. The counts may
    depend on a dropped token, but the next round's noise does not: it is drawn anew for each step, so the length of a
    block, chosen before, reveals nothing about its tokens (docs/exactness.md, rule 8). Under the coupled rule the noise
    stays, and the output does not depend on lengths.
    """

    @property
    def asked(self) -> int:
        """Tokens that the draft was asked for; 0 in a plain round."""
        ...

    @property
    def drafted_count(self) -> int:
        """Tokens that the draft proposed: fewer than asked if it stopped early, 0 if it had no proposal."""
        ...

    @property
    def depth(self) -> int:
        """Of those, the ones on the longest path of a tree; all of a chain."""
        ...

    @property
    def is_passed_over(self) -> bool:
        """Whether it has no proposal because none was there in time, though one was wanted."""
        ...

    @property
    def ahead(self) -> AheadOutcome | None:
        """What working ahead gave; None if the draft was not working ahead."""
        ...

    @property
    def works_ahead(self) -> bool:
        """Whether the draft worked ahead while the target judged it."""
        ...

    @property
    def accepted_count(self) -> int: ...

    @property
    def elapsed(self) -> float:
        """From the end of the previous round to the end of this one, without the time spent waiting for the client."""
        ...

    @property
    def period(self) -> float:
        """From the end of the previous round to the end of this one."""
        ...

    @property
    def draft_elapsed(self) -> float:
        """How long the round waited for its proposal: 0 in a plain round, and if it was prepared in time."""
        ...

    @property
    def draft_compute(self) -> float | None:
        """The drafter's computation time; None in a plain round."""
        ...

    @property
    def verify_compute(self) -> float: ...

    @property
    def batch_token_count(self) -> int:
        """Tokens in the target's forward pass, those of other outputs included."""
        ...

    @property
    def is_usual(self) -> bool:
        """Whether its times are typical: no sequence was opened in it and no call failed."""
        ...
