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
        self._timer = threading.Timer(timeout_seconds, self.exit, [f"it did not stop within {timeout_seconds:g} s"])
        self._timer.daemon = True
        self.is_armed = False

    def arm(self) -> None:
        """Starts the timer, unless it runs already."""
        if not self.is_armed:
            self.is_armed = True
            self._timer.start()

    def disarm(self) -> None:
        self._timer.cancel()

    def exit(self, reason: str) -> None:
        """Ends the process at once, without cleaning up."""
        logger.error("ending the process: %s", reason)
        exit_at_once()


def exit_at_once() -> NoReturn:
    """Ends the process without cleaning up."""
    logging.shutdown()
    os._exit(EXIT_STATUS)
