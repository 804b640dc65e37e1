"""A run that broke a promise is not in order."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.readings import Held, Reading, growth_per_minute
from tests.faults.recovery import DraftStop, TargetRestart
from tests.faults.report import by_victim, complaints, slow_recoveries
from tests.faults.run import Outcome
from tests.faults.streams import Streams

BEFORE = Reading(name="coordinator", life=1, at=0.0, resident_mib=100.0, descriptors=30, threads=20)


def outcome(after: Reading, held: Held | None = None) -> Outcome:
    return Outcome(before=[BEFORE], after=[after], held_after={"target-1": held or Held(sequences=0, used_blocks=0)})


def streams() -> Streams:
    return Streams(None, [], {}, 1, 1.0)


def test_nothing_to_complain_of() -> None:
    assert complaints(outcome(replace(BEFORE, resident_mib=110.0)), streams()) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [({"resident_mib": 200.0}, "MiB"), ({"descriptors": 90}, "descriptors"), ({"threads": 50}, "threads")],
)
def test_growth_is_one(change: dict[str, float], word: str) -> None:
    (complaint,) = complaints(outcome(replace(BEFORE, **change)), streams())  # pyright: ignore[reportArgumentType]
    assert word in complaint


def test_another_process_is_not_compared() -> None:
    assert complaints(outcome(replace(BEFORE, life=2, resident_mib=900.0)), streams()) == []


@pytest.mark.parametrize("held", [Held(sequences=1, used_blocks=0), Held(sequences=0, used_blocks=3)])
def test_what_is_held_afterwards_is_one(held: Held) -> None:
    assert len(complaints(outcome(BEFORE, held), streams())) == 1


def test_violations_are_complaints() -> None:
    clients = streams()
    clients.violations.append("lost a token")
    assert complaints(outcome(BEFORE), clients) == ["lost a token"]


def test_recoveries_are_held_to_what_is_promised() -> None:
    stop = DraftStop(usual_gap=0.2, longest_gap=3.8, second_longest_gap=0.4, median_longest_gap=3.2)
    restart = TargetRestart(to_first_stream=0.1, to_last_stream=0.3)
    assert slow_recoveries([stop], [restart]) == []
    for slow in ({"longest_gap": 6.5}, {"second_longest_gap": 3.2}):
        assert len(slow_recoveries([stop, replace(stop, **slow)], [])) == 1
    assert len(slow_recoveries([], [restart, replace(restart, to_last_stream=20.0)])) == 1


def test_counts_by_victim() -> None:
    counts = Counter({("target-1", "kill"): 2, ("draft-1", "stop"): 1, ("target-1", "stop"): 3})
    assert by_victim(counts) == {"draft-1": {"stop": 1}, "target-1": {"kill": 2, "stop": 3}}


def test_growth_leaves_the_beginning_out() -> None:
    rising = [replace(BEFORE, at=60.0 * i, resident_mib=100.0 + (50.0 if i > 5 else 0) + 2.0 * i) for i in range(20)]
    assert growth_per_minute(rising) == pytest.approx(2.0)
    assert growth_per_minute(rising[:3]) is None
