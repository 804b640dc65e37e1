"""The pauses between tries."""

import pytest

from specpair.rpc.retry import LEAST_SHARE, RetryPolicy


def test_pauses_double_and_then_stay_as_long() -> None:
    policy = RetryPolicy(first=0.1, most_doublings=3)
    assert [policy.longest_pause(i) for i in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.8, 0.8])
    assert policy.longest_pause(10_000) == policy.longest_pause(3)


def test_whoever_only_looks_waits_equally_long_each_time() -> None:
    policy = RetryPolicy(first=2.0, most_doublings=0)
    assert {policy.longest_pause(i) for i in range(9)} == {2.0}


def test_no_two_wait_equally_long() -> None:
    policy = RetryPolicy(first=1.0)
    pauses = [policy.pause(2) for _ in range(200)]
    assert len(set(pauses)) > 100
    assert all(LEAST_SHARE * 4.0 <= pause <= 4.0 for pause in pauses)
    assert min(pauses) < 2.5 and max(pauses) > 3.5
