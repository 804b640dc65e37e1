"""Adaptive K in simulated pairs: not slower than without proposals, near the best fixed K, and it follows the text."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from statistics import fmean

import pytest

from bench.simulated_machine import MEASURED as MEASURED_MACHINE
from bench.simulated_machine import Machine, Rates, Text
from bench.simulated_pair import FixedLength, Output, Policy, Simulation
from coordinator.adaptive import LengthController
from specpair.options import Drafter, Rule

FIXED = (1, 2, 3, 5, 8)
WARM_UP, MEASURED = 1500, 4000
"""Tokens."""
LEAST = {1: 0.97, 4: 0.97, 16: 0.88}
"""Share of the speed without proposals, by load. The goal is 0.97; with 16 outputs it is missed where proposals gain
nothing, since each of them has to find out."""
MISSED = {("a shared processor", 0.9, 4): 0.88, ("a shared processor", 0.9, 16): 0.85}
"""Where the goal is missed by more. There K = 3 is 1.3 times as fast and K = 5 slower than K = 0: from a length on the
target no longer waits for the draft, and the two slow each other down. With 16 outputs seeds differ: eight of them have
0.86 to 1.01."""
MACHINES = {
    "a large target": Machine(),
    "a small target": Machine(pass_time=1500.0, row_time=150.0, step_time=600.0),
    "a shared processor": Machine(pass_time=2500.0, row_time=200.0, step_time=700.0, contention=0.8),
}

APART = Machine(pass_time=1500.0, row_time=10.0, step_time=80.0, start_time=900.0, call_time=500.0)
"""A quick pair whose calls take as long as its passes, as on a GPU."""


def keep_busy(simulation: Simulation, make_output: Callable[[], Output], load: int) -> list[Output]:
    """So many outputs at any time: each that ends is followed by another. Returns the finished ones, as they come."""
    finished: list[Output] = []

    def follow(output: Output) -> None:
        finished.append(output)
        simulation.start(make_output())

    simulation.on_finish = follow
    for _ in range(load):
        simulation.start(make_output())
    return finished


def same(rate: float) -> Callable[[int], Rates]:
    return lambda token_count: (rate, rate, rate)


def rate_of(
    machine: Machine,
    text: Text,
    load: int,
    make_policy: Callable[[Simulation], Callable[[], Policy]],
    seed: int = 1,
    *,
    warm_up: int = WARM_UP,
) -> float:
    """Tokens per second of a pair that always has so many outputs."""
    simulation = Simulation(machine, seed=seed)
    policies = make_policy(simulation)
    keep_busy(simulation, lambda: Output(text, policies()), load)
    simulation.run(tokens=warm_up)
    return MEASURED / simulation.run(tokens=MEASURED) * 1e6


def fixed(length: int) -> Callable[[Simulation], Callable[[], Policy]]:
    return lambda simulation: lambda: FixedLength(length)


def adaptive(simulation: Simulation) -> Callable[[], Policy]:
    controller = LengthController()
    controller.publish(*simulation.machine.published())
    return lambda: controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)


@pytest.mark.few_cases(9)
@pytest.mark.parametrize("load", [1, 4, 16])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("machine", MACHINES)
def test_never_slower_than_not_proposing(machine: str, acceptance: float, load: int) -> None:
    text = Text(rates=same(acceptance))
    plain = rate_of(MACHINES[machine], text, load, fixed(0))
    least = MISSED.get((machine, acceptance, load), LEAST[load])
    assert rate_of(MACHINES[machine], text, load, adaptive) >= least * plain


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.95])
def test_near_the_best_fixed_length(acceptance: float) -> None:
    machine, text = MACHINES["a large target"], Text(rates=same(acceptance))
    best = max(rate_of(machine, text, 1, fixed(length)) for length in FIXED)
    assert best > 1.2 * rate_of(machine, text, 1, fixed(0))
    assert rate_of(machine, text, 1, adaptive) >= 0.93 * best


@pytest.mark.few_cases()
@pytest.mark.parametrize("has_confidence", [False, True])
def test_near_the_best_fixed_length_at_measured_costs(has_confidence: bool) -> None:
    text = Text(length=96, prompt=16, rates=lambda token_count: (0.54, 0.72, 0.76), has_confidence=has_confidence)

    def rate(make_policy: Callable[[Simulation], Callable[[], Policy]]) -> float:
        return fmean(rate_of(MEASURED_MACHINE, text, 1, make_policy, seed) for seed in range(8))

    assert rate(adaptive) >= 0.97 * max(rate(fixed(length)) for length in FIXED)


@pytest.mark.few_cases()
def test_tokens_that_make_calls_longer_are_not_asked_for_in_vain() -> None:
    """As on a fast target with weights of 8 bits, where a token costs more in the calls than in the draft."""
    quick = replace(MEASURED_MACHINE, pass_time=2900.0, row_time=260.0, step_time=110.0, start_time=200.0)
    machine = replace(quick, call_time=700.0, loop_time=200.0, token_time=400.0)
    text = Text(length=96, prompt=16, rates=lambda token_count: (0.53, 0.62, 0.68))

    def rate(make_policy: Callable[[Simulation], Callable[[], Policy]]) -> float:
        return fmean(rate_of(machine, text, 1, make_policy, seed) for seed in range(8))

    assert rate(adaptive) >= 0.95 * max(rate(fixed(length)) for length in FIXED)


def test_follows_a_text_that_changes() -> None:
    """What was accepted nearly always is accepted never: most rounds go without proposals, and those that try again
    ask for fewer tokens."""
    simulation = Simulation(MACHINES["a large target"], seed=1)
    policies = adaptive(simulation)
    text = Text(length=600, rates=lambda token_count: (0.9, 0.9, 0.9) if token_count < 300 else (0.0, 0.0, 0.0))
    finished = keep_busy(simulation, lambda: Output(text, policies()), 1)
    simulation.run(tokens=1800)
    lengths = finished[1].lengths
    assert max(lengths[:40]) >= 3
    assert sum(length > 1 for length in lengths[-200:]) <= 60
    assert fmean(lengths[-200:]) < 0.2 * fmean(lengths[:40])


def test_an_output_that_begins_badly_proposes_again() -> None:
    """Among texts that are mostly right, one whose first tokens never are: it does not go without to its end."""
    simulation = Simulation(MEASURED_MACHINE, seed=1)
    policies = adaptive(simulation)
    good = Text(length=96, prompt=16, rates=same(0.6))
    bad = Text(length=200, prompt=16, rates=lambda count: (0.0, 0.0, 0.0) if count < 40 else (0.6, 0.6, 0.6))
    texts = cycle((good, good, good, bad))
    finished = keep_busy(simulation, lambda: Output(next(texts), policies()), 1)
    simulation.run(tokens=12000)
    ends = [length for output in finished if output.text is bad for length in output.lengths[-20:-1]]
    assert sum(length == 0 for length in ends) < 0.05 * len(ends)


@pytest.mark.parametrize(("slow_starts", "warm_up"), [(3, WARM_UP), (8, 6000)])
def test_a_draft_that_was_slow_at_first_is_tried_again(slow_starts: int, warm_up: int) -> None:
    """Its first calls took twenty rounds. Without doubt it would never be asked again. Rounds save for the probes that
    find out, so it takes some thousand tokens, more with more slow calls."""
    machine = replace(APART, slow_starts=slow_starts, slow_start_time=30_000.0)
    text = Text(rates=same(0.8), prompt=128)
    usual = rate_of(APART, text, 1, adaptive)
    assert usual >= 1.5 * rate_of(APART, text, 1, fixed(0))
    assert rate_of(machine, text, 1, adaptive, warm_up=warm_up) >= 0.95 * usual


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("load", [1, 4, 16])
@pytest.mark.parametrize("start_time", [15_000.0, 60_000.0, 300_000.0])
def test_a_draft_that_is_always_slow_costs_next_to_nothing(start_time: float, load: int) -> None:
    """Its proposals take 10 to 150 rounds, and its tokens are nearly all accepted. By what it published they take one.
    Outputs are long, and the draft holds them all, so that all could probe."""
    machine = replace(APART, start_time=start_time)
    text = Text(rates=same(0.9), length=2000)
    plain = rate_of(machine, text, load, fixed(0), warm_up=6000)
    assert rate_of(machine, text, load, adaptive, warm_up=6000) >= 0.97 * plain


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("load", [1, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_draft_that_often_has_nothing_to_propose_is_not_taken_for_quick(load: int, seed: int) -> None:
    machine = replace(APART, start_time=60_000.0)
    text = Text(rates=same(0.9), coverage=0.5)
    plain = rate_of(machine, text, load, fixed(0), seed, warm_up=6000)
    assert rate_of(machine, text, load, adaptive, seed, warm_up=6000) >= 0.93 * plain
