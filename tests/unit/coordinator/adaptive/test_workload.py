"""What is learnt of a round, and which rounds are left out."""

from collections import defaultdict

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.load import Contribution, Load
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import Workload
from specpair.model_info import PassCost

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


def outcome_of(elapsed: float, asked: int, drafted: int, tokens: int, verify: float = 0.01) -> SimulatedRound:
    return SimulatedRound(
        asked=asked,
        drafted_count=drafted,
        accepted_count=0,
        elapsed=elapsed,
        period=elapsed,
        draft_elapsed=0.002 if asked else 0.0,
        draft_compute=0.001,
        verify_compute=verify,
        batch_token_count=tokens,
    )


def busy_workload(outputs: int) -> tuple[Workload, list[Contribution]]:
    load = Load()
    contributions = [Contribution(load) for _ in range(outputs)]
    passes = PassCosts()
    passes.publish((PassCost(token_count=1, seconds=0.01), PassCost(token_count=64, seconds=0.01)), 1e-5)
    return Workload(load, passes, defaultdict(RoundCosts).__getitem__, lambda count: 1e-3), contributions


@pytest.mark.parametrize(("outputs", "is_learnt"), [(4, False), (1, True)])
def test_a_probe_beside_others_says_nothing_of_the_rest_of_a_round(outputs: int, is_learnt: bool) -> None:
    """It waited for a pass of those that did not probe; alone it waits for nobody."""
    workload, _ = busy_workload(outputs)
    for i in range(outputs):
        workload.add(outcome_of(0.03, 1, 1, 5, 0.01 + i * 1e-9), is_probe=True)
    assert (workload.times().rest > 0.01) == is_learnt
    for i in range(outputs):
        workload.add(outcome_of(0.03, 1, 1, 5, 0.0101 + i * 1e-9))
    assert workload.times().rest > 0.01


def test_what_rounds_took_in_a_slow_hour_is_forgotten_by_probes() -> None:
    workload, _ = busy_workload(4)
    for i in range(24):
        workload.add(outcome_of(0.03, 1, 1, 5, 0.01 + i * 1e-9))
    assert workload.times().rest > 0.01
    for i in range(24):
        workload.add(outcome_of(0.013, 1, 1, 5, 0.0101 + i * 1e-9), is_probe=True)
    assert workload.times().rest < 0.005


def test_the_cache_is_read_whole_however_few_tokens_were_drafted() -> None:
    """One output asks for eight tokens and gets three; its pass takes 30 ms, 20 of them for its 2,000 tokens."""
    workload, (own,) = busy_workload(1)
    for i in range(40):
        own.set_cached_count(2000)
        asked = 8 * (i % 2)
        own.set_row_count(1 + asked)
        drafted = min(asked, 3)
        workload.add(outcome_of(0.035, asked, drafted, 1 + drafted, 0.03 + i * 1e-9))
    assert workload.passes.time(4, 2000) == pytest.approx(0.03, rel=0.01)
    assert workload.passes.time(4) == pytest.approx(0.01, rel=0.01)


def test_the_load_knows_what_its_outputs_have_in_the_cache() -> None:
    workload, (first, second) = busy_workload(2)
    first.set_cached_count(100)
    second.set_cached_count(30)
    second.set_cached_count(40)
    assert workload.load.cached_count == workload.times().cached_count == 140
    first.leave()
    second.leave()
    assert workload.load.cached_count == 0


@pytest.mark.parametrize("asked", [0, 1])
def test_a_target_that_does_not_say_what_its_passes_take_ends_no_output(asked: int) -> None:
    load = Load()
    Contribution(load).set_row_count(1 + asked)
    workload = Workload(load, PassCosts(), defaultdict(RoundCosts).__getitem__, lambda count: 1e-3)
    workload.add(outcome_of(0.03, asked, asked, 1 + asked, verify=0.0))
    assert workload.times().rest >= 0.0
