"""The interface of a drafter."""

from abc import ABC, abstractmethod

from draft_service.proposal import Drafted, ProposeCall
from specpair.sequences.held_sequence import HeldSequence


class Proposer(ABC):
    """Proposes tokens for the sequences that chose it. Their quality does not affect exactness: each token must only be
    drawn from exactly the distribution that is sent with it."""

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """Called when a sequence is opened: starts work that can be done before its first call, in the background."""
        return None

    @abstractmethod
    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        """Up to `call.count` tokens after the committed ones, which `held` has already and which stay as they are.

        The length may depend on the past and on tokens that are sent, never on one that was drawn and dropped
        (docs/exactness.md, rule 8).
        """
        ...
