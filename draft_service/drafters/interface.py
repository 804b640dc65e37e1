"""The interface of a drafter."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from draft_service.proposal import AheadOrder, Deliver, Drafted, ProposeCall
from specpair.sequences.held_sequence import HeldSequence


class Proposer(ABC):
    """Proposes tokens for the sequences that chose it. Their quality does not affect exactness: each token must only be
    drawn from exactly the distribution that is sent with it."""

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """Called when a sequence is opened: starts work that can be done before its first call, in the background."""
        return None

    def prepared(self, held: HeldSequence[Drafted], call: ProposeCall) -> Awaitable[Drafted | None] | None:
        """The proposal of a call if it was prepared, or begun; None from it if that failed. The sequence is at the
        position of the call then. None, and no change of the sequence, if there is none. What was prepared for another
        call is dropped."""
        return None

    def ready(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted | None:
        """The same if it is whole; None, and no change at all, if it is not."""
        return None

    def pass_over(self, held: HeldSequence[Drafted], call: ProposeCall) -> None:
        """Drops what was prepared for a call for which nothing is proposed."""
        self.forget(held)

    def work_ahead(
        self, held: HeldSequence[Drafted], call: ProposeCall, drafted: Drafted, order: AheadOrder, deliver: Deliver
    ) -> None:
        """Prepares proposals for the step after the call that `drafted` answered, in the background."""
        return None

    def forget(self, held: HeldSequence[Drafted]) -> None:
        """Drops what was prepared for a sequence."""
        return None

    @abstractmethod
    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        """Up to `call.count` tokens after the committed ones, which `held` has already and which stay as they are.

        The length may depend on the past and on tokens that are sent, never on one that was drawn and dropped
        (docs/exactness.md, rule 8).
        """
        ...
