"""What one pass for all saves, by the times of passes of their sizes."""

import asyncio
from typing import Any

import pytest

from specpair.engine.gathering import Gathering
from specpair.engine.statistics import EngineStatistics
from specpair.engine.turns import Turns
from specpair.sequences.sequence import Sequence
from tests.unit.specpair.engine.test_gathering import come_back, work_on
from tests.unit.specpair.engine.test_preemption import ChecksumRunner, StepWork, advance, make_cache


def test_where_rows_are_computed_in_groups_the_fixed_cost_is_what_one_pass_for_both_saves() -> None:
    """Passes of 1 to 8 rows take 9 to 12 ms, up to 16 they take 13, as on a processor with wide vectors: a line through
    them would say that two passes of 4 and 12 rows take 5 ms more than one."""
    gathering, here, away = Gathering(), Sequence([1]), [Sequence([1]) for _ in range(3)]
    for _ in range(20):
        for rows, milliseconds in ((1, 9), (4, 11), (8, 12), (12, 12.5), (16, 13), (24, 26), (32, 38)):
            gathering.add_pass(max(rows // 4, 1), rows, milliseconds / 1000)
    now = max(come_back(gathering, sequence, 0.0095, 1.0) for sequence in (here, *away))
    gathering.leave([work_on(sequence) for sequence in away], now)
    assert gathering.saving(1, 3) == pytest.approx(0.0105, rel=0.02)
    assert gathering.fixed_cost == pytest.approx(0.005, rel=0.1)
    assert gathering.patience([work_on(here)], now) > 0.0, "they are away for less than that saves"
    assert gathering.saving(4, 4) == 0.0, "32 rows take longer than twice 16"
    two, six = [Sequence([1]) for _ in range(2)], [Sequence([1]) for _ in range(6)]
    for number, sequence in enumerate((*two, *six)):
        come_back(gathering, sequence, 0.004 if number < 4 else 0.009, 1.0)
    gathering.leave([work_on(sequence) for sequence in six], 2.0)
    patience = gathering.patience([work_on(sequence) for sequence in two], 2.0)
    assert 0.004 <= patience < 0.009, "the next two are worth it, all six are not"


def test_also_those_whose_absences_differ_are_expected_if_one_pass_saves_more() -> None:
    gathering, here, away = Gathering(), Sequence([1]), [Sequence([1]) for _ in range(3)]
    for _ in range(20):
        for rows, milliseconds in ((1, 9), (4, 11), (8, 12), (12, 12.5), (16, 13), (24, 26), (32, 38)):
            gathering.add_pass(max(rows // 4, 1), rows, milliseconds / 1000)
    now = come_back(gathering, here, 0.001, 1.0)
    for absence in (0.008, 0.01) * 10:
        now += 0.02
        gathering.leave([work_on(sequence) for sequence in away], now)
        gathering.patience([work_on(here)], now)
        gathering.arrive([work_on(sequence, now + absence) for sequence in away])
    gathering.leave([work_on(sequence) for sequence in away], now + 0.02)
    assert gathering.patience([work_on(here)], now + 0.02) > 0.0


def test_one_pass_saves_no_more_than_the_shorter_of_two() -> None:
    """Though noise may say so."""
    gathering = Gathering()
    for rows, seconds in ((4, 0.012), (12, 0.013), (16, 0.01)) * 10:
        gathering.add_pass(rows // 4, rows, seconds)
    assert gathering.saving(1, 3) == pytest.approx(0.012)


def test_what_passes_took_in_parted_groups_counts_soon() -> None:
    gathering = Gathering()
    for rows, seconds in ((4, 0.009), (12, 0.0125), (16, 0.013)) * 40:
        gathering.add_pass(rows // 4, rows, seconds)
    for rows, seconds in ((4, 0.012), (12, 0.014)) * 12:
        gathering.add_pass(rows // 4, rows, seconds)
    assert gathering.saving(1, 3) > 0.0115


def test_a_stalled_pass_does_not_part_sequences_for_ever() -> None:
    gathering = Gathering()
    for rows in (4, 12, 16) * 10:
        gathering.add_pass(rows // 4, rows, 0.01)
    gathering.add_pass(4, 16, 0.3)
    assert gathering.saving(1, 3) < 0.01
    for rows in (4, 12) * 40:
        gathering.add_pass(rows // 4, rows, 0.01)
    assert gathering.saving(1, 3) == pytest.approx(0.01, rel=0.1)


def test_a_text_that_is_scored_does_not_change_what_a_sequence_brings() -> None:
    gathering = Gathering()
    for rows in (4, 12, 16) * 10:
        gathering.add_pass(rows // 4, rows, 0.01)
    gathering.add_pass(1, 512, 0.2)
    assert gathering._rows_each < 5.0


async def test_a_pass_tells_how_many_sequences_its_tokens_are_of() -> None:
    runner: Any = ChecksumRunner(make_cache("contiguous", 64))
    turns = Turns(runner, advance, EngineStatistics(), lambda call: None, token_budget=64, short=4)
    for _ in range(40):
        works = [StepWork(sequence=Sequence([token] * 2), row_count=2) for token in (1, 2, 3)]
        for work in works:
            work.future = asyncio.get_running_loop().create_future()
        turns.add(list(works))
        turns.turn()
    assert turns._gathering._rows_each == pytest.approx(2.0, rel=0.1)
