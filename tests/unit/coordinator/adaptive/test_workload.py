"""What is learnt of a round, and which rounds are left out."""

from collections import defaultdict
from itertools import pairwise

import pytest

from bench.simulated_pair import SimulatedRound
from coordinator.adaptive.ahead_outcome import AheadOutcome
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
        def add(self, rows: int, seconds: float, cached_count: float = 0.0, *, output_count: int = 1) -> float | None:
            learnt.append(rows)
            return super().add(rows, seconds, cached_count, output_count=output_count)

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


@pytest.mark.parametrize("has_shadows", [False, True])
def test_what_rounds_took_in_a_slow_hour_is_forgotten_by_probes(has_shadows: bool) -> None:
    workload, _ = busy_workload(4)
    for i in range(24):
        workload.add(outcome_of(0.03, 1, 1, 5, 0.01 + i * 1e-9))
    assert workload.times().rest > 0.01
    for i in range(24):
        if has_shadows:
            workload.add_guess(4, 2)
            workload.add(outcome_of(0.012, 0, 0, 4, 0.0101 + i * 1e-9))
        else:
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


def busy_with_answers(slow: float) -> tuple[Workload, list[Contribution]]:
    """Sixteen outputs whose plain passes take 10 ms and `slow` ms for the work on their answers beside them; a single
    output's take 10 ms."""
    load, passes = Load(), PassCosts()
    passes.publish((PassCost(token_count=1, seconds=0.01), PassCost(token_count=64, seconds=0.01 + 63e-4)))
    workload = Workload(load, passes, defaultdict(RoundCosts).__getitem__, lambda count: 1e-3)
    single = Contribution(load)
    for i in range(8):
        workload.add(outcome_of(0.0105, 0, 0, 1, 0.01 + i * 1e-9))
    others = [Contribution(load) for _ in range(15)]
    assert len({single, *others}) == load.output_count == 16
    for i in range(40):
        for _ in range(16):
            workload.add(outcome_of(0.0105 + slow, 0, 0, 16, 0.0115 + slow + i * 1e-9))
    return workload, [single, *others]


@pytest.mark.parametrize("slow", [0.0, 0.008])
def test_work_on_the_answers_of_many_makes_no_row_dearer(slow: float) -> None:
    """It delays a pass as much however many rows that has, so proposals are not believed to pay less for it."""
    times = busy_with_answers(slow)[0].times()
    assert times.target(16) == pytest.approx(0.0115 + slow, rel=0.03)
    assert times.target(48) - times.target(16) == pytest.approx(32e-4, rel=0.05)
    assert times.row(40) == pytest.approx(1e-4, rel=0.01)


@pytest.mark.parametrize(("rounds", "is_measured"), [(1, False), (8, True)])
def test_rows_cost_what_the_present_speed_says_once_it_is_that_of_proposals(rounds: int, is_measured: bool) -> None:
    workload, contributions = busy_with_answers(0.008)
    for contribution in contributions:
        contribution.set_row_count(2)
    for i in range(rounds):
        for _ in range(16):
            workload.add(outcome_of(0.026, 1, 1, 32, 0.021 + i * 1e-9))
    assert (workload.times().row_share == 1.0) == is_measured
    for contribution in contributions:
        contribution.set_row_count(1)
    for _ in range(16):
        workload.add(outcome_of(0.0185, 0, 0, 16, 0.0196))
    assert workload.times().row_share < 0.8, "the present speed is that of plain passes again"


def test_the_speed_of_a_single_output_is_known_less_and_less_well() -> None:
    """A machine that got slower while many ran is not taken for a busy one for ever."""
    passes = busy_with_answers(0.008)[0].passes
    assert passes.single_share < 0.75
    for i in range(20_000):
        passes.add(16, 0.0195 + i * 1e-9, output_count=16)
    assert passes.single_share > 0.95


def test_a_pass_in_which_only_some_propose_is_of_neither_kind() -> None:
    """Probes among outputs for which the target goes on by itself: its passes are as they were."""
    workload, contributions = busy_workload(16)
    for contribution in contributions[4:]:
        contribution.set_promised(is_promised=True)
    for turn in range(6):
        for contribution in contributions[:4]:
            contribution.set_row_count(1 + turn % 2)
        for i in range(8):
            workload.add(outcome_of(0.03, 0, 0, 16 + 4 * (turn % 2), (0.01 + 0.01 * (turn % 2)) + i * 1e-9))
    assert workload.times().slowdown == 1.0


def test_where_most_propose_a_slowdown_is_learned_though_some_wait_for_nobody() -> None:
    """For instance beside a client that never wants proposals."""
    workload, contributions = busy_workload(16)
    contributions[0].set_promised(is_promised=True)
    for turn in range(6):
        asked = turn % 2
        for contribution in contributions[1:]:
            contribution.set_row_count(1 + asked)
        for i in range(8):
            workload.add(outcome_of(0.03, asked, asked, 16 + 15 * asked, (0.01 + 0.01 * asked) + i * 1e-9))
    assert workload.times().slowdown > 1.3


def test_what_is_not_waited_for_while_the_draft_works_ahead_says_nothing_of_rounds_without() -> None:
    workload, _ = busy_workload(1)

    def add(asked: int, seconds: float, ahead: AheadOutcome | None) -> None:
        outcome = outcome_of(0.02 + seconds, asked, asked, asked + 1)
        workload.add(outcome._replace(draft_elapsed=seconds, draft_compute=seconds, ahead=ahead))

    for i in range(100):
        add(1 + i % 4, 0.002 * (1 + i % 4), None)
    alone = workload.times()
    assert alone.step == pytest.approx(0.002, rel=0.1)
    for i in range(100):
        add(1 + i % 4, 0.0, AheadOutcome.HIT)
    assert workload.times().step < 0.0005
    add(4, 0.008, None)
    assert workload.times().step < 0.0005, "a single one changes nothing"
    for _ in range(2):
        add(4, 0.008, None)
    assert workload.times().step == pytest.approx(alone.step, rel=0.01)


def test_before_the_draft_works_ahead_its_calls_are_expected_to_take_what_they_took_under_that_load() -> None:
    workload, contributions = busy_workload(1)
    workload.add(outcome_of(0.03, 2, 2, 3)._replace(draft_elapsed=0.009, draft_compute=0.001))
    contributions += [Contribution(workload.load) for _ in range(3)]
    assert workload.times().draft_rest == pytest.approx(0.007), "as under the nearest load"
    for _ in contributions:
        workload.add(outcome_of(0.03, 2, 2, 6)._replace(draft_elapsed=0.019, draft_compute=0.001))
    measured = workload.times().draft_rest
    assert measured > 0.016
    workload.add(outcome_of(0.03, 2, 2, 6)._replace(ahead=AheadOutcome.HIT, is_usual=False))
    assert workload.times().draft_rest == pytest.approx(measured), "before any was measured"


def proposed(ahead: AheadOutcome | None, seconds: float, *, works_ahead: bool = False) -> SimulatedRound:
    outcome = outcome_of(0.02 + seconds, 4, 4, 20)
    return outcome._replace(draft_elapsed=seconds, draft_compute=seconds / 2, ahead=ahead, works_ahead=works_ahead)


@pytest.mark.parametrize("first", ["a probe", "a first proposal"])
def test_a_proposal_that_nothing_was_prepared_for_does_not_make_all_others_dear(first: str) -> None:
    """After a while without proposals the draft has nothing ready; from the next one on it has."""
    workload, contributions = busy_workload(4)
    for contribution in contributions:
        contribution.set_row_count(5)
    for _ in range(40):
        workload.add(proposed(AheadOutcome.HIT, 0.0, works_ahead=True))
    usual = workload.times()
    for _ in contributions:
        workload.add(proposed(None, 0.06, works_ahead=first != "a probe"), is_probe=first == "a probe")
    assert workload.times().draft(4) == pytest.approx(usual.draft(4))
    for _ in range(40):
        workload.add(proposed(None, 0.06))
    assert workload.times().draft(4) > 0.05


@pytest.mark.parametrize(("others", "allowed"), [(1, 0), (4, 1), (7, 1)])
def test_where_some_work_ahead_and_some_do_not_the_costs_are_those_of_most(others: int, allowed: int) -> None:
    workload, contributions = busy_workload(8)
    for contribution in contributions:
        contribution.set_row_count(5)
    seen: list[bool] = []
    for turn in range(60):
        for output in range(8):
            is_ahead = output >= others
            workload.add(proposed(AheadOutcome.HIT if is_ahead else None, 0.0 if is_ahead else 0.03))
            if turn > 5:
                seen.append(workload.times().draft(4) > 0.01)
    changes = sum(before != after for before, after in pairwise(seen))
    assert (changes <= allowed and seen[-1] is (others > 4)) or others == 4
    assert changes <= allowed


def test_what_rounds_took_while_the_draft_worked_ahead_is_forgotten_by_probes_too() -> None:
    """Nothing is prepared for a probe. What it makes older is what decides whether outputs propose again."""
    workload, contributions = busy_workload(4)
    for contribution in contributions:
        contribution.set_row_count(5)
    for _ in range(24):
        workload.add(proposed(AheadOutcome.HIT, 0.03)._replace(draft_elapsed=0.0))
    assert workload.times().rest > 0.01
    for _ in range(60):
        workload.add(proposed(None, 0.0), is_probe=True)
    assert workload.times().rest < 0.01
