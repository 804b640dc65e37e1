"""The same seed breaks the same things in the same order, and asks for the same requests."""

from itertools import islice
from random import Random

from tests.faults.breaking import _FAULTS
from tests.faults.schedule import PROCESS_KINDS, STOPS, WAY_KINDS, Event, Kind, events
from tests.faults.workload import make_cases, vary


def first(count: int, seed: int = 1, victim: str = "draft-1") -> list[Event]:
    return list(islice(events(seed, victim, PROCESS_KINDS, 2.0, 4.0), count))


def test_events_depend_on_seed_and_victim_alone() -> None:
    assert first(100) == first(100)
    assert first(100) != first(100, seed=2)
    assert first(100) != first(100, victim="draft-2")


def test_each_kind_comes_first_once() -> None:
    assert {event.kind for event in first(len(PROCESS_KINDS))} == set(PROCESS_KINDS)
    dealt = islice(events(1, "way", WAY_KINDS, 2.0), len(WAY_KINDS))
    assert sorted(event.kind for event in dealt) == sorted(WAY_KINDS)


def test_events_keep_to_their_limits() -> None:
    for event in first(1000):
        assert 0 <= event.pause_seconds <= 8
        assert 0.2 <= event.seconds <= 4
        assert 0 <= event.amount < 1
    assert {event.kind for event in islice(events(1, "a", STOPS, 1.0), 50)} == {Kind.STOP}


def test_every_kind_can_be_done() -> None:
    assert set(PROCESS_KINDS) | set(WAY_KINDS) == set(Kind)
    assert set(_FAULTS) == set(WAY_KINDS)


def test_requests_depend_on_the_seed_alone() -> None:
    cases = make_cases(5, 12, 64, 100)
    assert cases == make_cases(5, 12, 64, 100)
    assert cases != make_cases(6, 12, 64, 100)
    assert {case.rule for case in cases if case.temperature} == {"coupled"}
    assert len([case for case in cases if not case.temperature]) == 6
    assert [vary(Random(2), case, 60.0) for case in cases] == [vary(Random(2), case, 60.0) for case in cases]


def test_variations_change_what_may_not_matter() -> None:
    random, (case,) = Random(1), make_cases(5, 1, 64, 100)
    varied = [vary(random, case, 60.0) for _ in range(500)]
    assert {one.num_speculative_tokens for one in varied} == {0, 3, None}
    assert {one.n for one in varied} == {1, 2}
    assert any(one.cancel_after is not None for one in varied)
    assert any(one.has_little_time for one in varied)
    assert {case.request(one).sampling.seed for one in varied} == {case.seed}
    assert case.output(1).seed == case.seed + 1
