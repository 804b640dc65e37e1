"""Verifications that are sent before the verdict of the step before, each on the condition of one outcome."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from coordinator.peers.ahead_blocks import BlockKey
from coordinator.peers.answers import Verdict
from specpair.errors import ConditionNotMetError, SpecpairError
from specpair.v1.proposal_pb2 import Proposal

logger = logging.getLogger(__name__)

Verification = Callable[[], Coroutine[Any, Any, Verdict]]
"""Begins a call. It is called only once its task runs: a task may be cancelled before."""


class EarlyResult(StrEnum):
    """How a call that was sent early ended."""

    MET = "met"
    """Its verdict was used."""
    NOT_MET = "not_met"
    """The verdict before it was another one, so the call did nothing."""
    FAILED = "failed"
    """It had no answer; the call is made again in the ordinary way, if it is needed."""


class EarlyCall:
    """One call on condition."""

    def __init__(self, proposal: Proposal, make: Verification, counts: dict[EarlyResult, int]):
        self.proposal = proposal
        self._counts = counts
        self._task = asyncio.create_task(self._run(make))

    async def verdict(self) -> Verdict | None:
        """Its verdict; None if it failed in any way."""
        verdict = await self._task
        if verdict is not None:
            self._counts[EarlyResult.MET] += 1
        return verdict

    def cancel(self) -> None:
        """Stops waiting for it; the target may go on."""
        self._task.cancel()

    async def _run(self, make: Verification) -> Verdict | None:
        try:
            return await make()
        except ConditionNotMetError:
            self._counts[EarlyResult.NOT_MET] += 1
        except SpecpairError as error:
            self._counts[EarlyResult.FAILED] += 1
            logger.debug("a verification on condition failed: %s", error.message)
        return None


class EarlyCalls:
    """The early calls of one sequence for one step. They never change what the session knows of the target."""

    def __init__(self, counts: dict[EarlyResult, int]):
        self._counts = counts
        self._calls: dict[BlockKey, EarlyCall] = {}

    def send(self, key: BlockKey, proposal: Proposal, make: Verification) -> None:
        """Makes a call, soon; there is none with this key yet."""
        self._calls[key] = EarlyCall(proposal, make, self._counts)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._calls

    def take(self, step: int, length: int, proposal: Proposal | None) -> EarlyCall | None:
        """The call for `step` after `length` committed tokens, with this very proposal; forgets all others.

        Those are refused by the target, and need no attention.
        """
        calls, self._calls = self._calls, {}
        for key, call in calls.items():
            is_right = (key.step, key.base_length + key.accepted_count + 1) == (step, length)
            if is_right and call.proposal is proposal:
                return call
        return None

    def cancel(self) -> None:
        """Stops waiting for all of them."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
