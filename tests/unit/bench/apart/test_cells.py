"""Which cells `bench.apart` has, and in which order its cases take turns."""

from collections import Counter

from bench.apart.cells import Cell, Matrix, order_of, quick
from specpair.options import Rule, WorkAhead


def test_every_pair_is_started_once_and_every_cell_is_measured_once() -> None:
    matrix = Matrix()
    cells = [
        cell
        for pair in matrix.pairs()
        for rule in matrix.rules_at(pair.temperature)
        for cell in matrix.cells_of(pair, rule)
    ]
    assert len(set(matrix.pairs())) == len(matrix.pairs()) == 2 * 2 * 2
    assert len(set(cells)) == len(cells) == matrix.cell_count() == 2 * 2 * (1 + 2) * 4 * 2
    assert len({cell.name for cell in cells}) == len(cells)


def test_at_temperature_0_one_rule_stands_for_all() -> None:
    assert Matrix().rules_at(0.0) == (Rule.COUPLED,)
    assert Matrix().rules_at(1.0) == (Rule.COUPLED, Rule.BLOCK)


def test_the_quick_part_has_both_drafts_temperatures_rules_and_batches() -> None:
    matrix = quick(Matrix())
    assert (matrix.acceptances, matrix.temperatures, matrix.batch_sizes) == ((0.85, 0.6), (0.0, 1.0), (1, 8))
    assert matrix.cell_count() == 12


def test_every_case_has_every_turn_in_a_shuffled_order() -> None:
    cell = some_cell()
    cases = [cell.case(WorkAhead.OFF, k) for k in (2, 4, 8)]
    order = list(order_of(cases, groups=5, repetitions=2))
    assert Counter((turn.case, turn.prompt, turn.repetition) for turn in order) == {
        (case, prompt, repetition): 1 for case in cases for prompt in range(5) for repetition in range(2)
    }
    firsts = {turn.case for turn in order[:: len(cases)]}
    assert len(firsts) > 1, "no case is always first"
    assert cases == [cell.case(WorkAhead.OFF, k) for k in (2, 4, 8)]


def test_a_case_is_what_its_cell_says() -> None:
    case = some_cell().case(WorkAhead.OFF, 6)
    assert (case.temperature, case.rule, case.batch_size, case.num_speculative_tokens) == (1.0, Rule.BLOCK, 8, 6)


def some_cell() -> Cell:
    return Cell(pair=Matrix().pairs()[-1], rule=Rule.BLOCK, round_trip_ms=5.0, batch_size=8)


def test_slower_devices_are_slower_in_all_their_times_alike() -> None:
    cells = [
        [cell.devices for pair in matrix.pairs() for cell in matrix.cells_of(pair, Rule.COUPLED)]
        for matrix in (Matrix(), Matrix(scale=3.0))
    ]
    for usual, slow in zip(*cells, strict=True):
        assert slow.round_ms(4) == 3.0 * usual.round_ms(4)
        assert (slow.verify_ms, slow.step_ms, slow.round_trip_ms) == (
            3.0 * usual.verify_ms,
            3.0 * usual.step_ms,
            3.0 * usual.round_trip_ms,
        )
