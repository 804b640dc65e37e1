"""What every drafter is, whatever it knows."""

from abc import ABC, abstractmethod

from draft_service.proposal import Drafted, ProposeCall
from specpair.sequences.held_sequence import HeldSequence


class Proposer(ABC):
    """Proposes tokens for the sequences that chose it. Whether they are any good is for the target to say: each must
    only be drawn from exactly the distribution that is sent with it."""

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """A sequence was opened: what can be done before its first call begins here, beside the event loop."""
        return None

    @abstractmethod
    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        """Up to `call.count` tokens after the committed ones, which `held` has already and which stay as they are.

        The length may depend on the past and on tokens that are sent, never on one that was drawn and dropped
        (docs/exactness.md, rule 8).
        """
        ...
