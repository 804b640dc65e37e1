"""All instances of one model service, draft or target, and the choice of one for a sequence."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, Self, TypeVar

from coordinator.deadline import NEVER, Deadline
from coordinator.peers.discovery import resolve
from coordinator.peers.link import Link
from coordinator.peers.news import News
from coordinator.peers.recovery import Recovery
from coordinator.peers.routing import Candidate, route
from specpair.errors import PeerUnavailableError
from specpair.model_info import ModelInfo

DISCOVERY_INTERVAL = 5.0
"""Seconds between two resolutions of the names.
"""

QUIET_SECONDS = 2.0
"""A wait for an instance is logged only after this time."""

LinkT = TypeVar("LinkT", bound=Link[Any])

logger = logging.getLogger(__name__)


class Pool(Generic[LinkT]):
    """Links to all instances; `make` creates one from an address. Used inside the running loop."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str, News], LinkT]):
        self.news = News()
        """Announces that an instance became usable or stopped being so."""
        self.links: dict[str, LinkT] = {}
        self.recoveries: dict[Recovery, int] = dict.fromkeys(Recovery, 0)
        """Recoveries by kind, for the metrics."""
        self._addresses = addresses
        self._make = make
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._missing: Set[str] = set()
        """Known addresses that the last resolution left out."""
        self._known: list[ModelInfo] = []
        self._known_at: int | None = None
        """The count of the news with which `_known` was made; None before."""

    @property
    def is_there(self) -> bool:
        """Whether any instance serves."""
        return any(link.is_there for link in self.links.values())

    def choose(self, token_ids: Sequence[int], avoided: Sequence[LinkT] = (), length: int = 0) -> LinkT | None:
        """The instance for a sequence that begins with `token_ids` and may grow to `length` tokens; see `route`.

        Instances whose breaker is open are taken only if there are no others, and `avoided` ones only after those.
        None if no instance is usable now.
        """
        usable = [link for link in self.links.values() if link.is_usable and _bears(link, length)]
        good = [link for link in usable if link not in avoided]
        links = [link for link in good if link.breaker.may_admit] or good or usable
        if not links:
            return None
        return links[route([Candidate(link.peer.address, link.sequence_count) for link in links], token_ids)]

    async def wait_until_there(self, within: float) -> None:
        """Waits until an instance serves.

        Raises VocabularyMismatchError if one does not fit the pair, PeerUnavailableError after `within` seconds.
        """
        deadline, quiet = Deadline.after(within), Deadline.after(QUIET_SECONDS)
        while not self.is_there:
            if (refusal := next((link.refusal for link in self.links.values() if link.refusal), None)) is not None:
                raise refusal
            if deadline.is_over:
                raise PeerUnavailableError(f"none of {', '.join(self._addresses)} could be reached within {within:g} s")
            if quiet.is_over:
                logger.info("waiting for %s, for at most %g s", " or ".join(self._addresses), within)
                quiet = NEVER
            await self.news.wait(min(deadline.remaining, quiet.remaining))

    def has_better(self, link: LinkT, length: int = 0) -> bool:
        """Whether there is a better instance than `link`, which failed: one that did not, or any if `link` is gone."""
        others = (
            other for other in self.links.values() if other is not link and other.is_usable and _bears(other, length)
        )
        return any(other.breaker.may_admit or not link.is_there for other in others)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Self]:
        """The pool, watched for as long as the context lasts and then closed."""
        watcher = asyncio.create_task(self.watch())
        try:
            yield self
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
            await self.close()

    async def watch(self) -> None:
        """Finds the instances and watches each, until cancelled."""
        try:
            while True:
                try:
                    await self.discover()
                except Exception:  # after any error: discovery must go on
                    logger.exception("looking for instances failed")
                await asyncio.sleep(DISCOVERY_INTERVAL)
        finally:
            for watcher in self._watchers.values():
                watcher.cancel()
            await asyncio.gather(*self._watchers.values(), return_exceptions=True)

    async def discover(self) -> None:
        """Adds new instances and removes those that the names left out twice in a row: a single incomplete DNS answer
        takes no target away from its requests."""
        found: set[str] = set()
        is_complete = True
        for address in self._addresses:
            try:
                found |= await resolve(address)
            except (OSError, ValueError):
                logger.warning("%s cannot be resolved at present", address)
                is_complete = False
        for address in found - self.links.keys():
            self.links[address] = self._make(address, self.news)
            self._watchers[address] = asyncio.create_task(self.links[address].watch())
        missing = self.links.keys() - found if is_complete else set[str]()
        for address in missing & self._missing:
            await self._let_go(address)
        self._missing = missing

    async def close(self) -> None:
        """Ends all connections."""
        await asyncio.gather(*(link.peer.close() for link in self.links.values()))

    async def _let_go(self, address: str) -> None:
        link, watcher = self.links.pop(address), self._watchers.pop(address)
        link.release()
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)  # unlike suppress, still raises on cancellation
        await link.peer.close()

    def _infos(self) -> list[ModelInfo]:
        """Model information of the serving instances; if none serves, of those that did.

        The same list until an instance announces a change: each round of each output asks for it several times.
        """
        if self._known_at != self.news.count:
            links = [link for link in self.links.values() if link.is_there] or self.links.values()
            self._known = [link.info for link in links if link.info is not None]
            self._known_at = self.news.count
        return self._known


def _bears(link: Link[Any], length: int) -> bool:
    return link.info is not None and not link.is_too_short(length)
