"""What every drafter is, whatever it knows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from draft_service.proposal import Drafted, ProposeCall
from specpair.engine.work import Work
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.tables import Tables


class Proposer(ABC):
    """Proposes tokens for the sequences that chose it. Whether they are any good is for the target to say: each must
    only be drawn from exactly the distribution that is sent with it."""

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """A sequence was opened: what can be done before its first call begins here, beside the event loop."""
        return None

    @abstractmethod
    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        """Up to `call.count` tokens behind the committed ones, which are `call`'s already and stay as they are.

        The length may depend on the past and on tokens that are sent, never on one that was drawn and dropped (rule 8
        of exactness in the design).
        """
        ...


class WorkRunner(Protocol):
    """What a drafter wants of the model's engine, which takes seconds to import."""

    async def run(self, work: Work) -> None:
        """Until the work is done. Raises its error."""
        ...


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What this process has for its drafters to work with."""

    engine: WorkRunner | None = None
    """Of the draft model, if there is one."""
    tables: Tables | None = None
    """Counts of a corpus, if they were loaded."""
