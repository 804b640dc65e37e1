"""The state of one instance of a model service: whether it serves, is checked, and how busy it is."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from coordinator.peers.breaker import Breaker
from coordinator.peers.failures import AWAY, is_refusal
from coordinator.peers.model_peer import ModelPeer
from coordinator.peers.news import News
from coordinator.peers.owed_closes import OwedCloses
from specpair.client.tls_hints import tls_hint
from specpair.errors import CapacityExhaustedError, SpecpairError, VocabularyMismatchError
from specpair.model_info import ModelInfo
from specpair.rpc.retry import RetryPolicy

CALL_TIMEOUT = 10.0
RECONNECTING = RetryPolicy(first=0.1, most_doublings=0)
REFUSED = RetryPolicy(first=10.0, most_doublings=0)
"""The pause before a refused process is checked again."""
REFUSED_HINT = "it refuses our token; see --peer-token-file"

PeerT = TypeVar("PeerT", bound=ModelPeer)

logger = logging.getLogger(__name__)


class Link(ABC, Generic[PeerT]):
    """The instance at one address. Its process may be replaced; each new one is compared with the pair before use."""

    name: str
    """draft or target, for the log."""

    def __init__(self, peer: PeerT, breaker: Breaker, news: News):
        """`news` announces every change of `is_usable`, except the end of a pause after a failure."""
        self.peer = peer
        self.breaker = breaker
        self.info: ModelInfo | None = None
        """Information about the checked process; None while there is none."""
        self.refusal: VocabularyMismatchError | None = None
        """Why the process is not used; None if it is not refused."""
        self.sequence_count = 0
        """Sequences that were placed here and are not closed."""
        self._news = news
        self._is_serving = False
        """The result of its health check."""
        self.is_released = False
        """Whether its address no longer belongs to the pair."""
        self.answered_at = 0.0
        """When it last answered a call, or sent something else, by time.monotonic; 0 before."""
        self._closes = OwedCloses(peer, news)
        self._is_away = False
        self._complaint: str | None = None
        self._check_wanted = asyncio.Event()
        self._checking = asyncio.Lock()

    @property
    def is_there(self) -> bool:
        """Whether the instance serves and was checked."""
        return self._is_serving and self.info is not None

    @property
    def is_usable(self) -> bool:
        """Whether the instance may be called now."""
        return self.is_there and self.breaker.may_admit

    def is_too_short(self, length: int) -> bool:
        """Whether the checked process takes no sequence of so many tokens."""
        return self.info is not None and self.info.max_model_len < length

    def fail(self, error: SpecpairError) -> None:
        """Notes a failed call: the process did not answer or is about to stop."""
        self.breaker.fail()
        if not self._is_away:
            logger.warning("the %s at %s failed: %s", self.name, self.peer.address, error.message)
            self._is_away = True
            self._news.announce()

    def welcome(self) -> None:
        """Notes an answer."""
        self.breaker.succeed()
        self.answered_at = time.monotonic()
        if self._is_away:
            logger.info("the %s at %s answers again", self.name, self.peer.address)
            self._is_away = False
            self._news.announce()

    def hear(self, seconds_ago: float) -> None:
        """Notes what it sent without being asked: the process lived then, which does not say that its calls succeed."""
        self.answered_at = max(self.answered_at, time.monotonic() - seconds_ago)

    async def check(self) -> None:
        """Compares the process with the pair and puts it into use.

        Raises VocabularyMismatchError, or PeerUnavailableError if it does not answer.
        """
        async with self._checking:
            self._check_wanted.clear()  # first: a request during this check asks for another one
            info = await self.peer.info(CALL_TIMEOUT)
            if not self._knows(info):
                await self._compare(info)
                logger.info("the %s at %s is in use", self.name, self.peer.address)
            self.info, self.refusal, self._complaint = info, None, None
            self._news.announce()

    async def close_sequence(self, sequence_id: str) -> None:
        """Closes a sequence there: now, or in the background once the process can be reached."""
        await self._closes.close(sequence_id, is_serving=self._is_serving)

    def owe_close(self, sequence_id: str) -> None:
        """Closes a sequence there in the background."""
        self._closes.owe(sequence_id)

    def release(self) -> None:
        """Ends the use of the instance: its sequences have to move elsewhere."""
        self.is_released, self._is_serving, self.info = True, False, None
        self._news.announce()

    async def watch(self) -> None:
        """Follows its health and checks it on demand, for as long as the coordinator runs."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._follow_health())
                    group.create_task(self._keep_checked())
                    group.create_task(self._closes.run())
            except Exception:  # after any error: the address must stay watched
                logger.exception("watching the %s at %s failed", self.name, self.peer.address)
            await asyncio.sleep(REFUSED.pause())

    @abstractmethod
    async def confirm(self, instance_id: str, within: float) -> None:
        """Makes sure that `instance_id` is the checked process; any other is to be checked. Raises SpecpairError."""

    @abstractmethod
    async def _compare(self, info: ModelInfo) -> None:
        """Raises VocabularyMismatchError if the process does not fit the pair."""

    def want_check(self) -> None:
        """Requests a check: another process answers there, or might."""
        self.info = None
        self._check_wanted.set()
        self._news.announce()

    def _knows(self, info: ModelInfo) -> bool:
        return self.info is not None and self.info.instance_id == info.instance_id

    async def _follow_health(self) -> None:
        while True:
            try:
                async for is_serving in self.peer.health():
                    if self._is_serving and not is_serving:
                        logger.info("the %s at %s takes no new work at present", self.name, self.peer.address)
                    self._set_serving(is_serving)
            except SpecpairError as error:
                logger.debug("no health check of the %s at %s: %s", self.name, self.peer.address, error.message)
                hint = tls_hint(error.message, speaks_tls=self.peer.speaks_tls)
                self._complain(error, REFUSED_HINT if is_refusal(error) else hint)
            except Exception:
                logger.exception("following the health of the %s failed", self.name)
            if self._is_serving:
                logger.warning("lost the connection to the %s at %s", self.name, self.peer.address)
            self._set_serving(False)
            await asyncio.sleep(RECONNECTING.pause())

    def _complain(self, error: SpecpairError, hint: str | None) -> None:
        """Logs once what an operator has to fix, such as certificates; nothing without a hint."""
        if hint is not None and hint != self._complaint:
            logger.warning("the %s at %s is not used: %s (%s)", self.name, self.peer.address, hint, error.message)
            self._complaint = hint

    def _set_serving(self, is_serving: bool) -> None:
        if is_serving == self._is_serving:
            return
        self._is_serving = is_serving
        if is_serving:
            self.breaker.succeed()  # its failures are from before
            self._check_wanted.set()  # it may be a new process
        self._news.announce()

    async def _keep_checked(self) -> None:
        while True:
            await self._check_wanted.wait()
            try:
                await self.check()
            except (*AWAY, CapacityExhaustedError) as error:
                logger.debug("the %s cannot be checked: %s", self.name, error.message)
                self._complain(error, REFUSED_HINT if is_refusal(error) else None)
                await self._check_again(RECONNECTING)
            except SpecpairError as error:
                self.info, self.refusal = None, error if isinstance(error, VocabularyMismatchError) else None
                logger.error("the %s at %s is not used: %s", self.name, self.peer.address, error.message)
                self._news.announce()
                await self._check_again(REFUSED)
            except Exception:  # after any error: the process must be checked again
                logger.exception("checking the %s failed", self.name)
                await self._check_again(REFUSED)

    async def _check_again(self, policy: RetryPolicy) -> None:
        await asyncio.sleep(policy.pause())
        self._check_wanted.set()
