"""A circuit breaker: stops calls to a failed peer, longer each time, then tries it again with a single call."""

import time
from collections.abc import Callable

from specpair.rpc.retry import RetryPolicy


class Breaker:
    """A circuit breaker, closed while calls succeed. Times are in seconds.

    After a failure it is open for `cooldown`, twice as long after each further one, up to 32 times. Then one call is
    admitted as a trial, and no other until the trial has ended or `trial_time` has passed.
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
        """Whether the last finished call succeeded."""
        return self._failure_count == 0

    @property
    def may_admit(self) -> bool:
        """Whether `admit` would return True now."""
        return self.is_closed or self._clock() >= self._open_until

    def admit(self) -> bool:
        """Whether a call may be made now; after a pause only the first one."""
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
        """A call failed. Further failures of calls that were under way at the first one change nothing."""
        if self.is_closed or self._is_trying:
            self._open_until = self._clock() + self._cooldown.longest_pause(self._failure_count)
            self._failure_count += 1
            self._is_trying = False
