"""Ends a process whose shutdown hangs."""

import logging
import os
import threading
from typing import NoReturn

EXIT_STATUS = 1

logger = logging.getLogger(__name__)


class Watchdog:
    """A timer in its own thread, so that a blocked event loop cannot stop it."""

    def __init__(self, timeout_seconds: float):
        self.timeout_seconds = timeout_seconds
        """Counts from when it is armed; may be set until then."""
        self._timer: threading.Timer | None = None

    @property
    def is_armed(self) -> bool:
        return self._timer is not None

    def arm(self) -> None:
        """Starts the timer, unless it runs already."""
        if self._timer is None:
            reason = f"it did not stop within {self.timeout_seconds:g} s"
            self._timer = threading.Timer(self.timeout_seconds, self.exit, [reason])
            self._timer.daemon = True
            self._timer.start()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def exit(self, reason: str) -> None:
        """Ends the process at once, without cleaning up."""
        logger.error("ending the process: %s", reason)
        exit_at_once()


def exit_at_once() -> NoReturn:
    """Ends the process without cleaning up."""
    logging.shutdown()
    os._exit(EXIT_STATUS)
