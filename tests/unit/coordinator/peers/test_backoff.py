"""Waiting between tries against one peer."""

from coordinator.peers import backoff

LONGEST = backoff.POLICY.longest_pause(1000)
"""As it is outside the tests, which wait for less."""


def test_no_pause_is_longer_than_a_second() -> None:
    """Of a target that is full, or whose pass failed, no news ends a pause: its clients wait for all of it."""
    assert 0.5 <= LONGEST <= 1.0
