"""Passes wait for sequences that are away for less time than a pass costs anyway, and for no others."""

from dataclasses import dataclass

import pytest

from specpair.engine.gathering import Gathering
from specpair.engine.work import Work
from specpair.sequences.sequence import Sequence


def work_on(sequence: Sequence, submitted_at: float = 0.0) -> Work:
    return Work(sequence=sequence, row_count=1, submitted_at=submitted_at)


def gathering_of(fixed: float, per_row: float) -> Gathering:
    """It has seen passes of 1 to 8 rows."""
    gathering = Gathering()
    for _ in range(20):
        for rows in range(1, 9):
            gathering.add_pass(rows, rows, fixed + per_row * rows)
    return gathering


def come_back(gathering: Gathering, sequence: Sequence, absence: float, now: float) -> float:
    """The sequence is answered at `now` and back after its absence; the time then."""
    gathering.leave([work_on(sequence)], now)
    gathering.arrive([work_on(sequence, now + absence)])
    return now + absence


@pytest.mark.parametrize(("fixed", "per_row"), [(0.02, 0.001), (0.001, 0.004), (0.01, 0.0)])
def test_the_fixed_cost_is_what_rows_do_not_explain(fixed: float, per_row: float) -> None:
    assert gathering_of(fixed, per_row).fixed_cost == pytest.approx(fixed, rel=0.05)


def test_who_asks_for_a_first_answer_does_not_wait_for_many() -> None:
    """Its own returns are not known, and it may be one of those that come back soon."""
    gathering, new, away = gathering_of(0.02, 0.0), Sequence([1]), Sequence([1])
    now = come_back(gathering, away, 0.015, 1.0)
    gathering.leave([work_on(away)], now)
    assert gathering.patience([work_on(new, now)], now) == 0.0
    new.answered_at = now - 0.001
    assert gathering.patience([work_on(new, now)], now) > 0.0


@pytest.mark.parametrize("rounds", [2, 6])
def test_sequences_that_begin_to_be_away_are_gathered_after_a_few_rounds(rounds: int) -> None:
    """Before, the device thread went on with them by itself, for long. Two are here, and two come in 8 of 20 ms."""
    gathering, sequences = gathering_of(0.02, 0.0), [Sequence([1]) for _ in range(4)]
    now = 1.0
    for _ in range(100):
        gathering.leave(list(map(followed, sequences)), now)
        gathering.go_on([work_on(sequence, now) for sequence in sequences])
        now += 0.02
    for _ in range(rounds):
        now = max([come_back(gathering, sequence, 0.012, now) for sequence in sequences])
    gathering.leave([work_on(sequence) for sequence in sequences], now)
    works = [work_on(sequence, now + 0.001) for sequence in sequences[:2]]
    gathering.arrive(works)
    assert (gathering.patience(works, now + 0.001) > 0.0) is (rounds > 2)


def test_where_passes_are_all_alike_rows_are_taken_to_cost_nothing() -> None:
    gathering = Gathering()
    for _ in range(10):
        gathering.add_pass(4, 4, 0.02)
    assert gathering.fixed_cost == pytest.approx(0.02)
    assert Gathering().fixed_cost == 0.0


@pytest.mark.parametrize(("fixed", "is_waited_for"), [(0.02, True), (0.004, False)])
def test_a_sequence_is_waited_for_if_a_pass_costs_more_than_its_absence(fixed: float, is_waited_for: bool) -> None:
    gathering, away, here = gathering_of(fixed, 0.001), Sequence([1]), Sequence([1])
    now = come_back(gathering, away, 0.005, 1.0)
    gathering.leave([work_on(away)], now)
    patience = gathering.patience([work_on(here)], now + 0.001)
    assert (patience > 0.0) is is_waited_for
    assert patience <= 2 * 0.005


def test_the_wait_ends_when_all_are_back() -> None:
    gathering = gathering_of(0.02, 0.0)
    first, second = Sequence([1]), Sequence([1])
    now = max(come_back(gathering, sequence, 0.005, 1.0) for sequence in (first, second))
    gathering.leave([work_on(first), work_on(second)], now)
    gathering.arrive([work_on(first, now + 0.001)])
    assert gathering.patience([work_on(first)], now + 0.001) > 0.0
    gathering.arrive([work_on(second, now + 0.002)])
    assert gathering.patience([work_on(first), work_on(second)], now + 0.002) == 0.0


def test_nobody_is_waited_for_longer_than_twice_as_long_as_usual_nor_after_its_end() -> None:
    gathering, away, here = gathering_of(0.02, 0.0), Sequence([1]), Sequence([1])
    now = come_back(gathering, away, 0.005, 1.0)
    gathering.leave([work_on(away)], now)
    assert gathering.patience([work_on(here)], now + 0.011) == 0.0
    gathering.leave([work_on(away)], now)
    gathering.forget(away)
    assert gathering.patience([work_on(here)], now) == 0.0


def test_a_work_under_way_does_not_wait() -> None:
    """A prefill in chunks, or a draft between two steps."""
    gathering, away = gathering_of(0.02, 0.0), Sequence([1])
    now = come_back(gathering, away, 0.005, 1.0)
    gathering.leave([work_on(away)], now)
    started = work_on(Sequence([1]))
    started.started_at = now
    assert gathering.patience([started], now) == 0.0


def test_a_new_sequence_is_not_waited_for() -> None:
    gathering, new = gathering_of(0.02, 0.0), Sequence([1])
    gathering.leave([work_on(new)], 1.0)
    assert gathering.patience([work_on(Sequence([1]))], 1.0) == 0.0


def test_one_stall_tilts_nothing() -> None:
    gathering = gathering_of(0.004, 0.001)
    gathering.add_pass(4, 4, 5.0)
    assert gathering.fixed_cost < 0.006
    sequence = Sequence([1])
    now = come_back(gathering, sequence, 0.003, 1.0)
    now = come_back(gathering, sequence, 10.0, now)
    absence = sequence.absences.longest
    assert absence is not None and absence < 0.005


@dataclass(eq=False)
class FollowedWork(Work):
    """A work that says itself whether its next call is here."""

    follows: bool = True

    @property
    def is_followed(self) -> bool:
        return self.follows


def followed(sequence: Sequence) -> Work:
    """A work whose next call is here when it ends."""
    return FollowedWork(sequence=sequence, row_count=1, submitted_at=0.0)


def test_a_call_that_is_here_already_is_waited_for_from_the_first_pass_on() -> None:
    gathering, here, other = Gathering(), Sequence([1]), Sequence([1])
    gathering.leave([followed(here)], 1.0)
    assert gathering.patience([work_on(other)], 1.0001) > 0.0
    gathering.arrive([work_on(here, 1.0002)])
    assert gathering.patience([work_on(other), work_on(here)], 1.0002) == 0.0


def test_also_by_works_under_way() -> None:
    gathering, here = gathering_of(0.02, 0.0), Sequence([1])
    gathering.leave([followed(here)], 1.0)
    started = work_on(Sequence([1]))
    started.started_at = 1.0
    assert 0.0 < gathering.patience([started], 1.0001) <= 0.02


@pytest.mark.parametrize(
    ("fixed_cost", "handing_over", "company", "is_waited_for"),
    [(0.02, 0.001, 17, True), (0.02, 0.001, 20, False), (0.4, 0.005, 17, True), (0.4, 0.005, 255, False)],
)
def test_many_that_went_on_by_themselves_do_not_wait_for_a_few(
    fixed_cost: float, handing_over: float, company: int, is_waited_for: bool
) -> None:
    """A wait costs each of them what handing over takes, and saves the one that is handed over its pass."""
    gathering, here = gathering_of(fixed_cost, 0.0), Sequence([1])
    now = 1.0
    for _ in range(200):
        gathering.leave([followed(here)], now)
        gathering.arrive([work_on(here, now + handing_over)])
        now += 1.0
    others = [Sequence([1]) for _ in range(company)]
    gathering.leave([followed(here), *map(followed, others)], now)
    works = [work_on(other, now) for other in others]
    gathering.go_on(works)
    assert (gathering.patience(works, now + 0.0001) > 0.0) is is_waited_for


def test_but_not_for_ever_nor_after_its_end() -> None:
    """Its caller may be gone, or the call may be a bad one."""
    gathering, here, other = gathering_of(0.004, 0.0), Sequence([1]), Sequence([1])
    gathering.leave([followed(here)], 1.0)
    assert gathering.patience([work_on(other)], 1.0041) == 0.0
    gathering.leave([followed(here)], 2.0)
    gathering.forget(here)
    assert gathering.patience([work_on(other)], 2.0) == 0.0


def test_returns_at_once_do_not_tell_how_long_others_take() -> None:
    gathering, sequence = gathering_of(0.02, 0.0), Sequence([1])
    now = come_back(gathering, sequence, 0.01, 1.0)
    for _ in range(20):
        gathering.leave([followed(sequence)], now)
        gathering.arrive([work_on(sequence, now + 0.0002)])
        now += 0.02
    assert sequence.absences.longest == pytest.approx(0.01)


@pytest.mark.parametrize(("company", "is_waited_for"), [(1, True), (7, False)])
def test_where_calls_come_back_soon_a_wait_has_to_save_more_than_it_costs(company: int, is_waited_for: bool) -> None:
    """With an absence of 9 ms and a fixed cost of 20 the wait saves 11 for the one that is away, and costs each of the
    others 9."""
    gathering, away = gathering_of(0.02, 0.0), Sequence([1])
    others = [Sequence([1]) for _ in range(company)]
    now = come_back(gathering, away, 0.009, 1.0)
    for _ in range(300):
        gathering.leave(list(map(followed, others)), now)
        now += 0.02
        gathering.arrive([work_on(other, now) for other in others])
    gathering.leave([work_on(away), *map(followed, others)], now)
    works = [work_on(other, now) for other in others]
    gathering.arrive(works)
    assert (gathering.patience(works, now + 0.0002) > 0.0) is is_waited_for


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_wait_is_not_given_up_before_who_is_waited_for_comes(share: float, count: int) -> None:
    for milliseconds in range(1, 20):
        gathering, away = gathering_of(0.02, 0.0), Sequence([1])
        now = come_back(gathering, away, milliseconds / 1000, 1.0)
        gathering.leave([work_on(away)], now)
        works = [work_on(Sequence([1])) for _ in range(count)]
        for work in works:
            work.sequence.absences.share_soon = share
        patience = gathering.patience(works, now)
        assert patience == 0.0 or patience >= milliseconds / 1000


def test_where_they_seldom_do_groups_are_gathered() -> None:
    """Once parted they would alternate for ever."""
    gathering, away = gathering_of(0.02, 0.0), Sequence([1])
    others = [Sequence([1]) for _ in range(7)]
    now = max([come_back(gathering, sequence, 0.015, 1.0) for sequence in (away, *others)])
    gathering.leave([work_on(sequence) for sequence in (away, *others)], now)
    works = [work_on(other, now + 0.011) for other in others]
    gathering.arrive(works)
    assert gathering.patience(works, now + 0.011) >= 0.004


@pytest.mark.parametrize(("before", "is_waited_for"), [(0.02, False), (0.012, False), (0.002, True), (-0.001, True)])
def test_who_is_away_for_long_is_waited_for_when_about_to_come(before: float, is_waited_for: bool) -> None:
    """Two are away for 30 ms and would miss a pass of 20 by a little: a wait of 2 ms saves each of them 18, and costs
    each of the four others 2. They take turns with other groups, so that a longer wait is not worth it."""
    gathering, away = gathering_of(0.02, 0.0), [Sequence([1]), Sequence([1])]
    now = max([come_back(gathering, sequence, 0.03, 1.0) for sequence in away])
    gathering.leave([work_on(sequence) for sequence in away], now)
    works = [work_on(Sequence([1])) for _ in range(4)]
    patience = gathering.patience(works, now + 0.03 - before)
    assert (patience > 0.0) is is_waited_for
    assert gathering.patience(works, now + 0.03 + 0.0021) == 0.0, "it may have ended"


@dataclass(eq=False)
class MissedWork(Work):
    """A work that says itself whether calls for other answers came."""

    misses: bool = True

    @property
    def has_missed(self) -> bool:
        return self.misses


@pytest.mark.parametrize("misses", [False, True])
def test_who_missed_is_not_waited_for_as_if_it_came_soon(misses: bool) -> None:
    """Where the draft works ahead calls come after 3 ms, or, once a proposal was made, after 25, longer than a pass."""
    gathering, away, others = gathering_of(0.02, 0.0), Sequence([1]), [Sequence([1]) for _ in range(3)]
    now = 1.0
    for _ in range(20):
        for absence in (0.003, 0.025):
            work = MissedWork(sequence=away, row_count=1, misses=absence > 0.01)
            gathering.leave([work], now)
            gathering.arrive([work_on(away, now + absence)])
            now += 0.05
    works = [work_on(other, now) for other in others]
    gathering.leave([MissedWork(sequence=away, row_count=1, misses=misses)], now)
    patience = gathering.patience(works, now + 0.001)
    assert (patience > 0.0) is not misses
    assert patience <= 0.0036, "beyond one and a half of the usual 3 ms it is a long absence"


@pytest.mark.parametrize(("jitter", "is_waited_for"), [(0.002, True), (0.012, False)])
def test_who_comes_irregularly_is_not_waited_for(jitter: float, is_waited_for: bool) -> None:
    """A client that pauses, for instance: a wait would mostly be in vain."""
    gathering, away, now = gathering_of(0.02, 0.0), Sequence([1]), 1.0
    for _ in range(30):
        for absence in (0.04 - jitter, 0.04 + jitter):
            now = come_back(gathering, away, absence, now)
    gathering.leave([work_on(away)], now)
    works = [work_on(Sequence([1])) for _ in range(4)]
    patience = max(gathering.patience(works, now + milliseconds / 1000) for milliseconds in range(60))
    assert (patience > 0.0) is is_waited_for
