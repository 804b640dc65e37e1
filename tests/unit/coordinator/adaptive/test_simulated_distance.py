"""Adaptive K in simulated pairs that are apart, whose target goes on to plain rounds by itself."""

from collections.abc import Callable
from statistics import fmean

import pytest

from bench.simulated_machine import Machine, Text
from bench.simulated_pair import FixedLength, Output, Policy, Simulation
from coordinator.adaptive import LengthController
from specpair.options import Drafter, Rule
from tests.unit.coordinator.adaptive.simulated_going_on import GoingOn
from tests.unit.coordinator.adaptive.test_simulated_pairs import keep_busy, same

WARM_UP, MEASURED = 800, 3000
"""Tokens."""


def apart(round_trip: float) -> Machine:
    """A pass takes 20 ms, a step of the draft 1 ms, the way there and back so many milliseconds."""
    return Machine(pass_time=20_000.0, row_time=500.0, step_time=1000.0, call_time=1000.0 * round_trip)


def rate_of(simulation: Simulation, acceptance: float, load: int, policies: Callable[[], Policy]) -> float:
    text = Text(rates=same(acceptance))
    keep_busy(simulation, lambda: Output(text, policies()), load)
    simulation.run(tokens=WARM_UP)
    return MEASURED / simulation.run(tokens=MEASURED) * 1e6


def adaptive(machine: Machine) -> Callable[[], Policy]:
    controller = LengthController()
    controller.publish(*machine.published())
    return lambda: controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)


@pytest.mark.parametrize("round_trip", [0.3, 5.0, 10.0])
@pytest.mark.parametrize("load", [1, 8])
def test_the_way_of_plain_rounds_is_hidden(round_trip: float, load: int) -> None:
    machine = apart(round_trip)
    round_time = machine.target_time(load) + machine.loop_time
    assert rate_of(GoingOn(machine), 0.0, load, lambda: FixedLength(0)) > 0.85e6 * load / round_time


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.5, 0.8])
@pytest.mark.parametrize(("round_trip", "load"), [(5.0, 1), (10.0, 1), (10.0, 4), (5.0, 8), (10.0, 8)])
def test_never_slower_than_not_proposing(round_trip: float, load: int, acceptance: float) -> None:
    machine = apart(round_trip)
    plain = rate_of(GoingOn(machine), acceptance, load, lambda: FixedLength(0))
    assert rate_of(GoingOn(machine), acceptance, load, adaptive(machine)) >= 0.94 * plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("round_trip", "load", "acceptance"), [(5.0, 1, 0.7), (10.0, 1, 0.8), (10.0, 4, 0.8), (5.0, 8, 0.7), (5.0, 8, 0.8)]
)
def test_near_the_best_fixed_length(round_trip: float, load: int, acceptance: float) -> None:
    """In the mean of three runs: one alone may be in either of two states for long."""
    machine, shares = apart(round_trip), list[float]()
    for seed in range(3):
        fixed = [rate_of(GoingOn(machine, seed), acceptance, load, lambda k=k: FixedLength(k)) for k in (0, 1, 2, 3, 5)]
        shares.append(rate_of(GoingOn(machine, seed), acceptance, load, adaptive(machine)) / max(fixed))
    assert fmean(shares) >= 0.9
