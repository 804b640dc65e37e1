"""What a pass takes by its rows: published, then measured; a stall or a slow phase is no property of rows."""

import random

import pytest

from coordinator.adaptive.pass_costs import PassCosts, are_alike
from specpair.model_info import PassCost


def published(*costs: tuple[int, float]) -> PassCosts:
    passes = PassCosts()
    passes.publish(tuple(PassCost(token_count=rows, seconds=seconds) for rows, seconds in costs))
    return passes


def test_what_was_published_is_known_at_once() -> None:
    passes = PassCosts()
    assert not passes.is_known and passes.time(8) == 0.0
    passes = published((1, 10.0), (8, 12.0), (16, 20.0), (32, 40.0))
    assert passes.is_known
    assert [passes.time(rows) for rows in (1, 8, 16, 24, 32)] == pytest.approx([10.0, 12.0, 20.0, 30.0, 40.0])
    assert passes.time(64) == pytest.approx(80.0), "beyond the last size as between the last two"
    assert passes.row(16) == pytest.approx(1.25)


def test_a_stall_among_what_was_published_does_not_count() -> None:
    """Other work on the machine only adds time: no pass takes longer than one with more rows."""
    passes = published((1, 10.0), (8, 90.0), (16, 20.0))
    assert passes.time(8) == pytest.approx(20.0)


def test_the_curve_of_a_new_target_replaces_what_was_learned() -> None:
    passes = published((1, 10.0), (16, 20.0))
    for _ in range(30):
        passes.add(4, 50.0 + _)
    costs = (PassCost(token_count=1, seconds=1.0), PassCost(token_count=16, seconds=2.0))
    passes.publish(costs)
    assert passes.time(16) == pytest.approx(2.0)
    passes.add(1, 9.0)
    known = passes.time(16)
    passes.publish(costs)
    assert passes.time(16) == known, "the same target is no news"


def test_a_machine_that_got_slower_is_so_at_every_size() -> None:
    passes = published((1, 10.0), (16, 20.0), (32, 40.0))
    for i in range(40):
        passes.add(1, 30.0 + i * 1e-6)
    assert passes.time(1) == pytest.approx(30.0, rel=0.02)
    assert passes.time(32) == pytest.approx(120.0, rel=0.15)


def test_measured_passes_bend_a_wrong_curve() -> None:
    passes, draw = published((1, 10.0), (64, 12.0)), random.Random(0)
    for _ in range(400):
        rows = draw.choice((4, 8, 16))
        passes.add(rows, (10.0 + 2.0 * rows) * draw.gauss(1.0, 0.05))
    assert passes.time(16) / passes.time(4) == pytest.approx(42.0 / 18.0, rel=0.1)
    assert passes.time(64) >= passes.time(16), "the curve rises"


@pytest.mark.parametrize(
    ("outputs", "is_bent"), [((4, 4), True), ((4, 16), False), ((16, 4), False), ((16, 14), True), ((3, 4), False)]
)
def test_passes_of_other_numbers_of_outputs_say_nothing_about_rows(outputs: tuple[int, int], is_bent: bool) -> None:
    """The work on the answers of many outputs may slow their passes, whatever their rows."""
    passes = published((1, 10.0), (64, 10.0 + 63.0 * 0.1))
    for i in range(200):
        passes.add(4, 10.3 + i * 1e-6, output_count=outputs[0])
        passes.add(32, 26.2 + i * 1e-6, output_count=outputs[1])
    assert (passes.time(32) > 1.5 * passes.time(4)) == is_bent


def test_numbers_of_outputs_are_alike_both_ways() -> None:
    assert are_alike(7, 8) and are_alike(8, 7) and not are_alike(8, 6) and not are_alike(6, 8)


def test_without_a_curve_rows_cost_little_until_passes_say_more() -> None:
    passes, draw = PassCosts(), random.Random(0)
    passes.add(1, 10.0)
    assert passes.time(2) == pytest.approx(10.2)
    for _ in range(300):
        rows = draw.choice((1, 2, 4, 8))
        passes.add(rows, (10.0 + 3.0 * rows) * draw.gauss(1.0, 0.05))
    assert passes.time(8) / passes.time(1) == pytest.approx(34.0 / 13.0, rel=0.15)


def test_a_stall_moves_the_curve_little() -> None:
    passes = published((1, 10.0), (16, 20.0))
    before = passes.time(8)
    for i in range(40):
        passes.add(8, 1000.0 if i == 5 else before + i * 1e-6)
    assert passes.time(8) == pytest.approx(before, rel=0.1)
    assert passes.time(8) / passes.time(1) < 1.1 * before / 10.0


def test_a_slow_phase_with_long_blocks_makes_rows_no_dearer() -> None:
    passes, draw = published((1, 100.0), (16, 130.0)), random.Random(0)
    for i in range(1200):
        is_slow = i // 100 % 2 == 0
        rows = draw.randint(6, 12) if is_slow else draw.randint(1, 5)
        passes.add(rows, (98.0 + 2.0 * rows) * (1.6 if is_slow else 1.0) * draw.gauss(1.0, 0.03))
    assert passes.time(12) / passes.time(1) < 1.4


def test_outputs_of_one_pass_report_it_once() -> None:
    together, alone = published((1, 10.0), (16, 20.0)), published((1, 10.0), (16, 20.0))
    for i in range(5):
        alone.add(16, 40.0 + i)
        for _ in range(16):
            together.add(16, 40.0 + i)
    assert together.time(16) == alone.time(16)


def test_many_passes_of_one_size_do_not_make_it_dearer() -> None:
    """Passes are late more often than early. What counts is how sizes compare, not how often each is seen: plain
    rounds are more than twice as many as rounds with proposals for the same text."""
    passes, draw = published((1, 10.0), (8, 13.0), (9, 15.0), (16, 17.0)), random.Random(0)
    for i in range(3000):
        rows = 1 if i % 140 < 100 else 8
        passes.add(rows, passes_seconds(rows) * (draw.choice((1.2, 1.5)) if draw.random() < 0.15 else 1.0) + i * 1e-9)
    assert passes.time(8) / passes.time(1) == pytest.approx(1.3, rel=0.04)
    assert passes.time(9) / passes.time(8) == pytest.approx(15.0 / 13.0, rel=0.04)


def passes_seconds(rows: int) -> float:
    return {1: 10.0, 8: 13.0}[rows]


def test_a_step_after_eight_rows_is_one() -> None:
    """Matrix products take eight rows at a time: the ninth costs as much as the next four."""
    passes = published((1, 10.0), (8, 13.0), (9, 17.0), (12, 17.5), (16, 18.0))
    assert passes.time(9) == pytest.approx(17.0)
    assert passes.row(8) == pytest.approx(4.0)
    assert passes.row(9) == pytest.approx(0.5 / 3)


def test_cached_tokens_take_time_that_rows_do_not() -> None:
    """Where most of a pass is reading the cache, further rows are nearly free, and a slow pass is not laid to them."""
    passes = PassCosts()
    passes.publish((PassCost(token_count=1, seconds=4.0), PassCost(token_count=16, seconds=8.0)), 0.01)
    assert passes.time(16, 1000) == pytest.approx(18.0)
    for i in range(20):
        passes.add(1, 14.0 + i * 1e-9, 1000)
        passes.add(16, 18.0 + i * 1e-9, 1000)
    assert passes.time(16) - passes.time(1) == pytest.approx(4.0, rel=0.01)
    assert passes.time(16, 2000) == pytest.approx(28.0, rel=0.01)


def test_a_pass_without_a_time_is_none() -> None:
    """As of an answer that came from memory."""
    passes = published((1, 10.0), (8, 12.0))
    assert passes.add(2, 0.0) is None
    assert passes.add(3, 11.0) is not None
