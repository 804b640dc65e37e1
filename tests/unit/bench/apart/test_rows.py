"""What `bench.apart` makes of what it measured in a cell."""

import pytest

from bench.apart.cells import Cell, Matrix, order_of
from bench.apart.probe import Probe
from bench.apart.rows import rows_of, speeds
from bench.case import Case
from bench.measurement import Counts, Measurement, Output
from specpair.options import Rule, WorkAhead

CELL = Cell(pair=Matrix().pairs()[0], rule=Rule.COUPLED, round_trip_ms=5.0, batch_size=2)
ROUNDS = 20
OVERHEAD_MS = 2.0
HITS, LATE = 12, 3
WORKED_AHEAD = {"ahead_hits": HITS, "ahead_late": LATE, "ahead_misses": ROUNDS - HITS - LATE}
SURVIVAL = (0.8, 0.6, 0.5, 0.4, 0.1, 0.05, 0.025, 0.0)


def output_of(case: Case, round_ms: float) -> Output:
    """Two outputs of equally many rounds; one begins later than the other."""
    k = case.num_speculative_tokens or 0
    accepted = tuple(round(2 * ROUNDS * share) for share in SURVIVAL[:k])
    counts = Counts(
        rounds=2 * ROUNDS,
        drafted=2 * ROUNDS * k,
        accepted=sum(accepted),
        drafted_per_position=(2 * ROUNDS,) * k,
        accepted_per_position=accepted,
        **(WORKED_AHEAD if case.work_ahead is WorkAhead.ON else {}),
    )
    seconds = ROUNDS * round_ms / 1000
    return Output(
        token_ids=[[], []],
        first_token_seconds=0.1,
        tokens=2 * ROUNDS + sum(accepted),
        seconds=1.5 * seconds,
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
    ways = {way: [CELL.case(way, k) for k in (1, 4, 8)] for way in (WorkAhead.OFF, WorkAhead.ON)}
    speedup = {WorkAhead.OFF: 1.0, WorkAhead.ON: 1.5}
    times = {case: round_ms(case.num_speculative_tokens or 0) / speedup[way] for way in ways for case in ways[way]}
    base, ahead = rows_of(CELL, ways, measured(times))
    assert (base.way, base.num_speculative_tokens, base.ratio_to_synchronous) == ("synchronous", 4, None)
    assert base.tokens_per_round == pytest.approx(1 + sum(SURVIVAL[:4]), rel=0.01)
    assert base.tokens_per_second == max(base.tried.values()) == base.tried[4]
    assert base.overhead_ms == pytest.approx(OVERHEAD_MS)
    assert base.hit_rate is None, "the draft did not work ahead"
    assert ahead.ratio_to_synchronous is not None
    assert ahead.ratio_to_synchronous.value == pytest.approx(1.5)
    assert ahead.hit_rate == pytest.approx((HITS + LATE) / ROUNDS)
    assert ahead.overhead_ms is None, "only a synchronous round can be calculated"


def test_a_synchronous_way_is_below_the_bound_by_its_overhead() -> None:
    cases = {CELL.case(WorkAhead.OFF, k): round_ms(k) for k in (4, 8)}
    (row,) = rows_of(CELL, {WorkAhead.OFF: list(cases)}, measured(cases))
    assert row.bound_tokens_per_second > row.tokens_per_second
    assert row.to_bound == pytest.approx(CELL.devices.round_ms(4) / round_ms(4), rel=0.05)
    assert row.co_located_tokens_per_second > row.bound_tokens_per_second


def test_the_end_of_a_turn_in_which_some_outputs_have_ended_does_not_count() -> None:
    output = output_of(CELL.case(WorkAhead.OFF, 4), 30.0)
    expected = 2 * (1 + sum(SURVIVAL[:4])) / 0.030
    assert speeds({(0, 0): output}) == {(0, 0): pytest.approx(expected, rel=0.01)}


def test_a_probe_finds_the_best_k_from_what_rounds_really_take() -> None:
    """Overhead for each token makes shorter proposals best, a round trip longer ones."""
    cases = {CELL.case(WorkAhead.OFF, k): 20.0 + k for k in (4, 8)}
    dear = {case: 20.0 + 5 * (case.num_speculative_tokens or 0) for case in cases}
    cheap_probe, dear_probe = (Probe.of(list(each), measured(each)) for each in (cases, dear))
    assert cheap_probe.round_ms.slope == pytest.approx(1.0)
    assert cheap_probe.profile == pytest.approx([0.8, 0.75, 5 / 6, 0.8, 0.25, 0.5, 0.5, 0.0])
    assert dear_probe.best_k(0.0) < cheap_probe.best_k(0.0) <= cheap_probe.best_k(20.0)
