"""Verifications that are sent before the verdict of the step before, each on the condition of one outcome."""

from collections.abc import Sequence
from enum import StrEnum

from coordinator.peers.ahead_blocks import BlockKey


class EarlyResult(StrEnum):
    """What became of a call that was sent early."""

    MET = "met"
    """It was the call of the next round."""
    NOT_MET = "not_met"
    """The verdict before it was another one, so the target did nothing."""


class EarlyCalls:
    """The outcomes of one step after which a call was sent early. They get no answers, so there is nothing to wait for:
    the call of the step itself is made in any case, and finds its work begun."""

    def __init__(self, counts: dict[EarlyResult, int]):
        self._counts = counts
        self._sent: set[BlockKey] = set()

    def add(self, key: BlockKey) -> None:
        self._sent.add(key)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._sent

    def take(self, step: int, history: Sequence[int], *, may_be_met: bool = True) -> bool:
        """Whether the call for `step` after these committed tokens was sent early, and in time if it `may_be_met`;
        forgets all that were."""
        sent, self._sent = self._sent, set()
        place = (step, len(history), history[-1]) if may_be_met else None
        met = sum((key.step, key.base_length + key.accepted_count + 1, key.next_token_id) == place for key in sent)
        self._counts[EarlyResult.MET] += met
        self._counts[EarlyResult.NOT_MET] += len(sent) - met
        return met > 0
