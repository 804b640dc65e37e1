"""What is learnt of a round, and which rounds are left out."""

from collections import defaultdict

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import Workload

OUTPUTS, ASKED = 3, 2


@pytest.mark.parametrize(
    ("drafted", "tokens", "is_learnt"),
    [(ASKED, OUTPUTS * (1 + ASKED), True), (ASKED, 200, False), (12, OUTPUTS * 13, True)],
    ids=["a chain", "beside a prompt", "a tree of the target's head"],
)
def test_passes_that_also_fed_a_prompt_are_left_out(drafted: int, tokens: int, is_learnt: bool) -> None:
    load, learnt = Load(), list[int]()
    for _ in range(OUTPUTS):
        Contribution(load).set_row_count(1 + ASKED)

    class Passes(PassCosts):
        def add(self, rows: int, seconds: float, cached_count: float = 0.0) -> float | None:
            learnt.append(rows)
            return super().add(rows, seconds, cached_count)

    workload = Workload(load, Passes(), defaultdict(RoundCosts).__getitem__, lambda count: 1e-3)
    workload.add(
        SimulatedRound(
            asked=ASKED,
            drafted_count=drafted,
            accepted_count=1,
            elapsed=0.03,
            period=0.03,
            draft_elapsed=0.0,
            draft_compute=0.0,
            verify_compute=0.02,
            batch_token_count=tokens,
        )
    )
    assert learnt == [tokens] * is_learnt


def proposing_outcome(elapsed: float) -> SimulatedRound:
    return SimulatedRound(
        asked=1,
        drafted_count=1,
        accepted_count=1,
        elapsed=elapsed,
        period=elapsed,
        draft_elapsed=0.002,
        draft_compute=0.001,
        verify_compute=0.01,
        batch_token_count=5,
    )


@pytest.mark.parametrize(("outputs", "is_learnt"), [(4, False), (1, True)])
def test_a_probe_beside_others_says_nothing_of_the_rest_of_a_round(outputs: int, is_learnt: bool) -> None:
    """It waited for a pass of those that did not probe; alone it waits for nobody."""
    load = Load()
    for _ in range(outputs):
        Contribution(load)
    workload = Workload(load, PassCosts(), defaultdict(RoundCosts).__getitem__, lambda count: 1e-3)
    for _ in range(outputs):
        workload.add(proposing_outcome(0.03), is_probe=True)
    assert (workload.times().rest > 0.01) == is_learnt
    for _ in range(outputs):
        workload.add(proposing_outcome(0.03))
    assert workload.times().rest > 0.01
