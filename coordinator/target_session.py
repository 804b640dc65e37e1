"""One sequence at the target, through restarts and lost connections."""

import asyncio
import logging
from collections.abc import Sequence

from coordinator.backoff import Backoff
from coordinator.peer import AWAY, LOST, Verdict
from coordinator.target_link import TargetLink
from specpair.errors import CapacityExhaustedError, SpecpairError
from specpair.options import SequenceOptions
from specpair.v1.proposal_pb2 import Proposal

CLOSE_TIMEOUT = 5.0

logger = logging.getLogger(__name__)


class TargetSession:
    """Gives each round its verdict, however often the target has to be asked or opened again.

    A repeated call carries the same step, so nothing is drawn twice: the target answers from memory. One that was
    restarted judges again with the same noise; if its verdict differs, by rounding, the lost one was never seen.
    """

    def __init__(
        self,
        link: TargetLink,
        sequence_id: str,
        prompt_length: int,
        options: SequenceOptions,
        timeout: float,
        include_probabilities: bool = False,
    ):
        self._link = link
        self._sequence_id = sequence_id
        self._prompt_length = prompt_length
        self._options = options
        self._timeout = timeout
        self._include_probabilities = include_probabilities
        self._is_open = False
        self._lock = asyncio.Lock()
        """Held by the call under way: a sequence is not forked in the middle of one."""

    async def open(self, history: Sequence[int]) -> None:
        """Registers the sequence. Raises CapacityExhaustedError at once: nothing was generated yet."""
        backoff = Backoff("target", self._timeout)
        while not self._is_open:
            try:
                await self._open(history, backoff)
            except AWAY as error:
                await backoff.pause(error)

    async def fork(self, original: "TargetSession") -> None:
        """Registers the sequence as a copy of another's prompt. What keeps it from that, `verify` makes good."""
        async with original._lock:
            try:
                instance_id = await self._link.peer.fork(
                    original._sequence_id,
                    self._sequence_id,
                    self._prompt_length,
                    self._options.sampling,
                    self._timeout,
                )
                await self._link.confirm(instance_id)
                self._is_open = True
            except SpecpairError as error:
                logger.info("not forked: %s", error.message, extra={"sequence_id": self._sequence_id})

    async def verify(self, step: int, history: Sequence[int], proposal: Proposal | None) -> Verdict:
        """The verdict of one round. Raises PeerUnavailableError when the target stays away."""
        async with self._lock:
            return await self._verify(step, history, proposal)

    async def _verify(self, step: int, history: Sequence[int], proposal: Proposal | None) -> Verdict:
        backoff = Backoff("target", self._timeout)
        while True:
            try:
                if not self._is_open:
                    await self._reopen(history, backoff)
                return await self._link.peer.verify(
                    self._sequence_id, step, len(history), proposal, backoff.remaining, self._include_probabilities
                )
            except LOST as error:
                self._is_open = False
                await self._wait(backoff, error)
            except (*AWAY, CapacityExhaustedError) as error:
                await self._wait(backoff, error)

    async def close(self) -> None:
        """Gives the blocks back. A target that is away has lost them anyway."""
        async with self._lock:
            try:
                await self._link.peer.close_sequence(self._sequence_id, CLOSE_TIMEOUT)
            except SpecpairError as error:
                logger.debug("closing at the target failed: %s", error.message)

    async def _open(self, history: Sequence[int], backoff: Backoff) -> None:
        instance_id = await self._link.peer.open(
            self._sequence_id, history, self._prompt_length, self._options, backoff.remaining
        )
        await self._link.confirm(instance_id)
        self._is_open = True

    async def _reopen(self, history: Sequence[int], backoff: Backoff) -> None:
        await self._link.peer.close_sequence(self._sequence_id, backoff.remaining)
        await self._open(history, backoff)

    async def _wait(self, backoff: Backoff, error: SpecpairError) -> None:
        logger.warning("asking the target again: %s", error.message, extra={"sequence_id": self._sequence_id})
        await backoff.pause(error)
