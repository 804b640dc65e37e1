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
        def add(self, rows: int, seconds: float) -> float | None:
            learnt.append(rows)
            return super().add(rows, seconds)

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
