"""What `bench.apart` makes of what it measured in a cell."""

from dataclasses import replace

import pytest

from bench.apart.cells import Cell, Matrix, order_of
from bench.apart.probe import Probe
from bench.apart.rows import SYNCHRONOUS, rows_of, speeds
from bench.case import Case
from bench.measurement import Counts, Measurement, Output
from specpair.options import Rule

CELL = Cell(pair=Matrix().pairs()[0], rule=Rule.COUPLED, round_trip_ms=5.0, batch_size=2)
ROUNDS = 20
OVERHEAD_MS = 2.0
SURVIVAL = (0.8, 0.6, 0.5, 0.4, 0.1, 0.05, 0.025, 0.0)


def output_of(case: Case, round_ms: float) -> Output:
    """Two outputs of as many rounds as alike; one of them ends in half the time of the turn, as if it were shorter."""
    k = case.num_speculative_tokens or 0
    accepted = tuple(round(2 * ROUNDS * share) for share in SURVIVAL[:k])
    counts = Counts(
        rounds=2 * ROUNDS,
        drafted=2 * ROUNDS * k,
        accepted=sum(accepted),
        drafted_per_position=(2 * ROUNDS,) * k,
        accepted_per_position=accepted,
    )
    seconds = ROUNDS * round_ms / 1000
    return Output(
        token_ids=[[], []],
        first_token_seconds=0.1,
        tokens=2 * ROUNDS + sum(accepted),
        seconds=2 * seconds,
        output_seconds=2 * seconds,
        round_seconds=[round_ms / 1000] * 2 * ROUNDS,
        counts=counts,
    )


def measured(cases: dict[Case, float]) -> list[Measurement]:
    return [
        Measurement(turn=turn, output=output_of(turn.case, cases[turn.case]))
        for turn in order_of(list(cases), groups=2, repetitions=2)
    ]


def round_ms(k: int) -> float:
    return CELL.devices.round_ms(k) + OVERHEAD_MS


def test_a_way_is_shown_at_its_best_k_and_compared_with_the_best_synchronous_k() -> None:
    synchronous = {CELL.synchronous(k): round_ms(k) for k in (1, 4, 8)}
    faster = {replace(case, temperature=0.5): ms / 1.5 for case, ms in synchronous.items()}
    ways = {SYNCHRONOUS: list(synchronous), "faster": list(faster)}
    base, other = rows_of(CELL, ways, measured(synchronous | faster))
    assert (base.way, base.num_speculative_tokens, base.ratio_to_synchronous) == (SYNCHRONOUS, 4, None)
    assert base.tokens_per_round == pytest.approx(1 + sum(SURVIVAL[:4]), rel=0.01)
    assert base.tokens_per_second == max(base.tried.values()) == base.tried[4]
    assert base.overhead_ms == pytest.approx(OVERHEAD_MS)
    assert other.ratio_to_synchronous is not None
    assert other.ratio_to_synchronous.value == pytest.approx(1.5)
    assert other.overhead_ms is None, "only a synchronous round can be calculated"


def test_a_synchronous_way_is_below_the_bound_by_its_overhead() -> None:
    cases = {CELL.synchronous(k): round_ms(k) for k in (4, 8)}
    (row,) = rows_of(CELL, {SYNCHRONOUS: list(cases)}, measured(cases))
    assert row.bound_tokens_per_second > row.tokens_per_second
    assert row.to_bound == pytest.approx(CELL.devices.round_ms(4) / round_ms(4), rel=0.05)
    assert row.co_located_tokens_per_second > row.bound_tokens_per_second


def test_the_end_of_a_turn_in_which_some_outputs_have_ended_does_not_count() -> None:
    output = output_of(CELL.synchronous(4), 30.0)
    expected = 2 * (1 + sum(SURVIVAL[:4])) / 0.030
    assert speeds({(0, 0): output}) == {(0, 0): pytest.approx(expected, rel=0.01)}


def test_a_probe_finds_the_best_k_from_what_rounds_really_take() -> None:
    """Overhead for each token makes shorter proposals best, a round trip longer ones."""
    cases = {CELL.synchronous(k): 20.0 + k for k in (4, 8)}
    dear = {case: 20.0 + 5 * (case.num_speculative_tokens or 0) for case in cases}
    cheap_probe, dear_probe = (Probe.of(list(each), measured(each)) for each in (cases, dear))
    assert cheap_probe.round_ms.slope == pytest.approx(1.0)
    assert cheap_probe.profile == pytest.approx([0.8, 0.75, 5 / 6, 0.8, 0.25, 0.5, 0.5, 0.0])
    assert dear_probe.best_k(0.0) < cheap_probe.best_k(0.0) <= cheap_probe.best_k(20.0)
