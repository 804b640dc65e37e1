"""Detects a hanging device thread, such as on a hung GPU or on a disk that stopped answering.

The watch regularly asks the thread for a sign of life, which it gives between two forward passes. Silence is counted in
looks, not read from a clock, so that the time for which the whole process was stopped does not count.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specpair.engine.engine import Engine

MOST_SECONDS_BETWEEN_LOOKS = 1.0
LOOKS_PER_TIMEOUT = 10
"""Least number of looks within a timeout; fewer make the timeout less exact."""
GIVEN_UP = 2.0
"""Silence, in timeouts, after which only a new process helps."""

log = logging.getLogger(__name__)


class Dependent(Protocol):
    """Depends on the device: a server."""

    async def set_ready(self, is_ready: bool) -> None: ...
    def fail(self, reason: str) -> None: ...


class DeviceWatch:
    """Watches the device thread of one engine. Runs on the event loop."""

    def __init__(self, engine: "Engine", timeout: float):
        """A forward pass that takes longer than `timeout` seconds counts as hanging."""
        self._engine = engine
        self._timeout = timeout
        self._sign = threading.Event()
        self._sign.set()
        self.pause = min(timeout / LOOKS_PER_TIMEOUT, MOST_SECONDS_BETWEEN_LOOKS)
        """Seconds from one look to the next."""

    @property
    def silence(self) -> float:
        """Seconds since the thread was asked, without time in which the process was stopped; 0 once it has answered."""
        return self._engine.statistics.silence

    @property
    def is_hanging(self) -> bool:
        return self.silence >= self._timeout

    @property
    def is_given_up(self) -> bool:
        return self.silence >= GIVEN_UP * self._timeout

    def look(self) -> None:
        """Checks whether the thread has answered. If so, asks again; if not, adds to the silence."""
        if not self._sign.is_set():
            self._engine.statistics.silence += self.pause
            return
        self._engine.statistics.silence = 0.0
        self._sign = threading.Event()
        self._engine.ask(self._sign.set)

    async def follow(self, dependent: Dependent) -> None:
        """Sets the health of `dependent` by the device's signs of life, until the device breaks or is given up."""
        while not self._engine.broken.done():
            await asyncio.sleep(self.pause)
            was_hanging = self.is_hanging
            self.look()
            if self.is_hanging != was_hanging:
                self._log_change()
                await dependent.set_ready(not self.is_hanging)
            if self.is_given_up:
                self._engine.give_up()

    def _log_change(self) -> None:
        if self.is_hanging:
            log.error("a forward pass has been hanging for %g s; health is NOT_SERVING", self._timeout)
        else:
            log.warning("the hanging forward pass has finished")


@asynccontextmanager
async def watching_device(engine: "Engine", pass_timeout: float, dependent: Dependent) -> AsyncIterator[None]:
    """Inside the context, the health of `dependent` says whether the device answers; `dependent` fails if it breaks."""
    engine.broken.add_done_callback(lambda broken: dependent.fail(broken.result()))
    following = asyncio.create_task(DeviceWatch(engine, pass_timeout).follow(dependent))
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
