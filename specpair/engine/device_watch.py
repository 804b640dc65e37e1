"""Notices a device thread that does not come back: a GPU that is wedged, a disk that stopped under the weights.

Now and then the thread is asked for a sign of life, which it gives between two forward passes. Its silence is counted
in looks, not read from a clock: a process that is stopped looks at nothing meanwhile, so it does not count the time for
which it stood still.
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
"""At least: the fewer, the less exact is the timeout."""
GIVEN_UP = 2.0
"""Timeouts of silence after which only a new process helps."""

log = logging.getLogger(__name__)


class Dependent(Protocol):
    """What can do nothing without the device: a server."""

    async def set_ready(self, is_ready: bool) -> None: ...
    def fail(self, reason: str) -> None: ...


class DeviceWatch:
    """The signs of life of one engine. Runs on the event loop."""

    def __init__(self, engine: "Engine", timeout: float):
        """A pass that takes longer than `timeout`, in seconds, hangs."""
        self._engine = engine
        self._timeout = timeout
        self._sign = threading.Event()
        self._sign.set()
        self.pause = min(timeout / LOOKS_PER_TIMEOUT, MOST_SECONDS_BETWEEN_LOOKS)
        """Seconds from one look to the next."""

    @property
    def silence(self) -> float:
        """Seconds since the thread was asked, of those in which the process ran; 0 once it has answered."""
        return self._engine.statistics.silence

    @property
    def is_hanging(self) -> bool:
        return self.silence >= self._timeout

    @property
    def is_given_up(self) -> bool:
        return self.silence >= GIVEN_UP * self._timeout

    def look(self) -> None:
        """Whether the thread has answered: if so it is asked again."""
        if not self._sign.is_set():
            self._engine.statistics.silence += self.pause
            return
        self._engine.statistics.silence = 0.0
        self._sign = threading.Event()
        self._engine.ask(self._sign.set)

    async def follow(self, dependent: Dependent) -> None:
        """Has the health of what depends on the device follow its signs of life, until it ends or is given up."""
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
            log.error("a forward pass has not come back for %g s; its requests are to go elsewhere", self._timeout)
        else:
            log.warning("the forward pass that hung has come back")


@asynccontextmanager
async def watching_device(engine: "Engine", pass_timeout: float, dependent: Dependent) -> AsyncIterator[None]:
    """Meanwhile the health of `dependent` says whether the device answers, and it fails for good if that is lost."""
    engine.broken.add_done_callback(lambda broken: dependent.fail(broken.result()))
    following = asyncio.create_task(DeviceWatch(engine, pass_timeout).follow(dependent))
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
