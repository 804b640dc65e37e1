"""The distributions of a proposal with which the target began before they were here."""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from specpair.speculation.counted_rows import SentRows
from specpair.v1 import target_service_pb2 as pb

LONGEST_WAIT = 10.0
"""Seconds that a judged pass waits for them: as long as an unused sequence keeps its place when places are short."""


class LateOutcome(StrEnum):
    """When the distributions of such a proposal came."""

    IN_TIME = "in_time"
    """Before its pass had ended."""
    WAITED_FOR = "waited_for"
    """Afterwards."""
    WITHDRAWN = "withdrawn"
    """They did not come, or another call did in their place: nothing was judged."""


class WithdrawnError(Exception):
    """Nobody brings the distributions any more: the step counts as not taken."""


class LateRows:
    """Where the distributions of one begun call come to. The event loop gives them; the device thread may read them."""

    def __init__(self) -> None:
        self.rows: SentRows | None = None
        """None until they have come."""
        self._has_changed = asyncio.Event()

    def give(self, rows: SentRows) -> None:
        self.rows = rows
        self._has_changed.set()

    def withdraw(self) -> None:
        """Ends the wait for them, once the pass is over."""
        self._has_changed.set()

    async def wait(self, within: float = LONGEST_WAIT) -> SentRows:
        """The distributions, once they come. Raises WithdrawnError if they do not."""
        try:
            async with asyncio.timeout(within):
                await self._has_changed.wait()
        except TimeoutError:
            pass
        if self.rows is None:
            raise WithdrawnError
        return self.rows


@dataclass(frozen=True)
class WithheldBody:
    """Identifies a call on condition by all but its distributions, until the ordinary call brings them."""

    digest: bytes
    late: LateRows = field(compare=False)


def withholding(request: pb.VerifyProposalRequest) -> pb.VerifyProposalRequest:
    """The request as it was sent on condition, without its distributions."""
    bare = pb.VerifyProposalRequest()
    bare.CopyFrom(request)
    bare.proposal.distributions.withheld.SetInParent()
    return bare
