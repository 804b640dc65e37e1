"""A circuit breaker: a peer that failed is left alone, longer each time, and then tried again by a single call."""

import time
from collections.abc import Callable

from specpair.rpc.retry import RetryPolicy


class Breaker:
    """Closed while calls succeed. Times are in seconds.

    After a failure it is open for `cooldown`, twice as long after each further one, up to 32 times. Then one call is
    admitted as a trial, and no other for `trial_time` or until it is known how that one ended.
    """

    def __init__(self, cooldown: float, trial_time: float, clock: Callable[[], float] = time.monotonic):
        self._cooldown = RetryPolicy(first=cooldown)
        self._trial_time = trial_time
        self._clock = clock
        self._failure_count = 0
        self._open_until = 0.0
        self._is_trying = False

    @property
    def is_closed(self) -> bool:
        """Whether the last call succeeded, as far as is known."""
        return self._failure_count == 0

    @property
    def may_admit(self) -> bool:
        """Whether `admit` would say yes now."""
        return self.is_closed or self._clock() >= self._open_until

    def admit(self) -> bool:
        """Whether a call may be made now; of those that come after a pause the first alone."""
        if not self.may_admit:
            return False
        if not self.is_closed:
            self._is_trying = True
            self._open_until = self._clock() + self._trial_time
        return True

    def succeed(self) -> None:
        """A call was answered."""
        self._failure_count, self._is_trying = 0, False

    def fail(self) -> None:
        """A call was not. Calls that were under way beside the first one to fail change nothing any more."""
        if self.is_closed or self._is_trying:
            self._open_until = self._clock() + self._cooldown.longest_pause(self._failure_count)
            self._failure_count += 1
            self._is_trying = False
