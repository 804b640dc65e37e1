"""What longer proposals cost while the draft works ahead. Times are in milliseconds."""

from collections import defaultdict

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.lateness import MEMORY, Lateness
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import LONGEST, Workload
from specpair.model_info import PassCost

STEP, PASS = 1.0, 20.0


def test_nothing_is_said_before_a_proposal_is_known() -> None:
    assert not Lateness().waits(STEP, 4)


def test_a_single_output_waits_until_its_proposal_is_there() -> None:
    lateness = Lateness()
    lateness.add(-2.5, 6, 0.0, load=1)
    lateness.add(1.0, 6, 1.25, load=1)
    waits = lateness.waits(STEP, 10)
    assert waits == pytest.approx([0.0] * 6 + [0.5, 1.0, 1.5, (0.5 + 4.0) / 2, (1.5 + 5.0) / 2])


def test_several_outputs_wait_for_a_pass_of_the_others() -> None:
    """It has to be there a tenth of a pass before."""
    lateness = Lateness()
    lateness.add(-4.5, 6, 0.0, load=2)
    assert lateness.waits(STEP, 9, PASS) == pytest.approx([0.0] * 9 + [PASS]), "before any was late"
    lateness.add(1.0, 6, 12.0, load=2)
    assert lateness.waits(STEP, 9, PASS) == pytest.approx([0.0] * 6 + [6.0] * 3 + [12.0])


def test_how_long_before_a_proposal_has_to_be_there_is_known_by_those_that_were() -> None:
    lateness = Lateness()
    for spare in (0.5, 4.0):
        lateness.add(-spare, 6, 0.0, load=2)
    assert lateness.waits(STEP, 10, PASS) == pytest.approx([0.0] * 7 + [PASS / 2] * 3 + [PASS])


def test_what_is_known_is_looked_at_anew_when_enough_of_it_is_new() -> None:
    lateness = Lateness()
    for _ in range(MEMORY):
        lateness.add(-2.5, 6, 0.0, load=1)
    before = lateness.waits(STEP, 8)
    lateness.add(2.0, 6, 2.0, load=1)
    assert lateness.waits(STEP, 8) is before
    for _ in range(MEMORY):
        lateness.add(2.0, 6, 2.0, load=1)
    assert lateness.waits(STEP, 8)[6] == pytest.approx(2.0)


def test_what_had_to_be_asked_for_is_late_however_short_it_is() -> None:
    lateness = Lateness()
    lateness.add(14.0, 6, 30.0, load=2)
    lateness.add(1.0, 6, 10.0, load=2)
    assert lateness.waits(STEP, 8, PASS) == pytest.approx([15.0] * 6 + [20.0] * 3)


def test_a_stall_counts_as_a_few_usual_waits() -> None:
    lateness = Lateness()
    for late in [2.0] * 10 + [5000.0]:
        lateness.add(late, 6, late, load=1)
    assert lateness.waits(STEP, 6)[6] < 3.0


def test_what_is_long_ago_is_forgotten() -> None:
    lateness = Lateness()
    for late in [3.0] * MEMORY + [-3.0] * MEMORY:
        lateness.add(late, 6, max(late, 0.0), load=1)
    assert lateness.waits(STEP, 9) == pytest.approx([0.0] * 10)


def workload_of(outputs: int) -> Workload:
    load, passes = Load(), PassCosts()
    for _ in range(outputs):
        Contribution(load).set_row_count(7)
    passes.publish((PassCost(token_count=1, seconds=PASS), PassCost(token_count=128, seconds=PASS)))
    return Workload(load, passes, defaultdict(RoundCosts).__getitem__, lambda count: STEP)


def ahead(
    outcome: AheadOutcome, outputs: int, *, spare: float = 0.0, waited: float = 0.0, queued: float = 0.0
) -> SimulatedRound:
    return SimulatedRound(
        asked=6,
        drafted_count=6,
        accepted_count=4,
        elapsed=PASS + waited + queued,
        period=PASS + waited + queued,
        draft_elapsed=waited,
        draft_compute=waited,
        verify_compute=PASS,
        batch_token_count=7 * outputs,
        ahead=outcome,
        works_ahead=True,
        spare=spare,
    )


@pytest.mark.parametrize(("outputs", "one_more"), [(1, 0.25), (8, PASS)])
def test_a_longer_proposal_is_free_until_it_is_late(outputs: int, one_more: float) -> None:
    workload, lead = workload_of(outputs), 2.0 * (outputs > 1)
    for _ in range(3 * outputs):
        workload.add(ahead(AheadOutcome.HIT, outputs, spare=2.75 + lead))
    times = workload.times()
    assert (times.draft(1), times.draft(8), times.draft(9)) == pytest.approx((0.0, 0.0, one_more))
    assert times.draft(LONGEST + 2) == pytest.approx(times.draft(LONGEST) + 2 * times.step)


def test_what_misses_a_pass_is_a_wait_for_a_proposal_and_no_rest_of_every_round() -> None:
    workload = workload_of(8)
    for _ in range(8):
        hit = ahead(AheadOutcome.HIT, 8, spare=2.75, queued=0.5)
        workload.add(hit._replace(batch_token_count=42))
        for _ in range(2):
            workload.add(ahead(AheadOutcome.MISS, 8, waited=14.0, queued=6.0))
    times = workload.times()
    assert times.rest == pytest.approx(0.5)
    assert times.draft(6) == pytest.approx(20.0 * 2 / 3)
    assert times.target(56) == pytest.approx(PASS, rel=0.1)
