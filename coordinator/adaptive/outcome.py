"""What the adaptive part reads of a round."""

from typing import Protocol


class RoundOutcome(Protocol):
    """A finished round. Times are in seconds.

    It says how many tokens were proposed and accepted, and how long it took, never which tokens. How many may depend on
    a token that was dropped, but the next round's noise does not: it is drawn anew for each step, so the length of a
    block, chosen before, tells nothing of its tokens (docs/exactness.md, rule 8). Under the coupled rule the noise
    stays, and the output does not depend on lengths.
    """

    @property
    def asked(self) -> int:
        """Tokens that the draft was asked for; 0 in a plain round."""
        ...

    @property
    def drafted_count(self) -> int:
        """Tokens that it proposed: fewer than asked where it stopped, 0 where it knew nothing."""
        ...

    @property
    def accepted_count(self) -> int: ...

    @property
    def elapsed(self) -> float:
        """From the end of the round before to the end of this one, without what its client made it wait."""
        ...

    @property
    def period(self) -> float:
        """The same with that."""
        ...

    @property
    def draft_elapsed(self) -> float:
        """From the call to the draft to its answer; 0 in a plain round."""
        ...

    @property
    def draft_compute(self) -> float | None:
        """Of the drafter's computation; None in a plain round."""
        ...

    @property
    def verify_compute(self) -> float: ...

    @property
    def batch_token_count(self) -> int:
        """Tokens in the target's forward pass, those of other outputs included."""
        ...

    @property
    def is_usual(self) -> bool:
        """Whether it says what such a round costs: not if a sequence was opened in it, or a call failed."""
        ...
