"""When a peer that failed is asked again."""

from coordinator.peers.breaker import Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make() -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(1.0, 5.0, clock), clock


def test_calls_pass_until_one_fails() -> None:
    breaker, _ = make()
    assert all(breaker.admit() for _ in range(3)) and breaker.is_closed
    breaker.fail()
    assert not breaker.is_closed and not breaker.may_admit and not breaker.admit()


def test_after_the_pause_a_single_call_is_the_trial() -> None:
    breaker, clock = make()
    breaker.fail()
    clock.now += 1.0
    assert [breaker.admit() for _ in range(3)] == [True, False, False]
    breaker.succeed()
    assert breaker.is_closed and breaker.admit()


def test_a_trial_of_which_nothing_is_heard_makes_way_for_another() -> None:
    breaker, clock = make()
    breaker.fail()
    clock.now += 1.0
    assert breaker.admit()
    clock.now += 4.9
    assert not breaker.admit()
    clock.now += 0.1
    assert breaker.admit()


def test_the_pause_doubles_up_to_a_limit_and_begins_anew_after_a_success() -> None:
    breaker, clock = make()
    pauses = []
    for _ in range(8):
        breaker.fail()
        start = clock.now
        while not breaker.admit():
            clock.now += 0.5
        pauses.append(clock.now - start)
    assert pauses == [1, 2, 4, 8, 16, 32, 32, 32]
    breaker.succeed()
    breaker.fail()
    clock.now += 1.0
    assert breaker.admit()


def test_calls_that_were_under_way_together_fail_once() -> None:
    breaker, clock = make()
    for _ in range(16):
        breaker.fail()
    clock.now += 1.0
    assert breaker.admit(), "the pause is that of a first failure"
