"""Working ahead is on where it is faster, and costs next to nothing where it is not: held against a simulated pair."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.ahead_trial import AheadTrial

K = 4
TOKENS = 3.0


@dataclass(frozen=True, kw_only=True)
class MadeRound:
    """An `AheadRound`."""

    asked: int = K
    drafted_count: int = K
    accepted_count: int = 2
    elapsed: float
    period: float
    draft_elapsed: float
    draft_compute: float
    verify_compute: float
    batch_token_count: int = K + 1
    is_usual: bool = True
    is_passed_over: bool = False
    ahead: AheadOutcome | None
    works_ahead: bool

    @property
    def depth(self) -> int:
        return self.drafted_count


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Times are in milliseconds."""

    verify: float
    draft: float
    way: float = 0.5
    """To the draft and back."""
    hit_rate: float = 0.7
    slowdown: float = 1.0
    """How much longer a verification takes beside the work ahead."""
    noise: float = 0.1

    def round(self, random: Random, *, was_ahead: bool, works_ahead: bool) -> MadeRound:
        outcome = None
        if was_ahead:
            outcome = AheadOutcome.HIT if random.random() < self.hit_rate else AheadOutcome.MISS
        waited = 0.0 if outcome is AheadOutcome.HIT else self.draft + self.way
        verify = self.verify * (self.slowdown if works_ahead else 1.0) * random.lognormvariate(0.0, self.noise)
        return MadeRound(
            elapsed=waited + verify,
            period=waited + verify,
            draft_elapsed=waited,
            draft_compute=self.draft,
            verify_compute=verify,
            ahead=outcome,
            works_ahead=works_ahead,
        )


def time_of(machine: Machine, rounds: int, mode: bool | None, seed: int = 1, load: int = 1) -> tuple[float, AheadTrial]:
    """The time of so many rounds of each output, always or never working ahead, or as the trial decides (None)."""
    random, trial, total = Random(seed), AheadTrial(), 0.0
    was_ahead = [False] * load
    for index in range(rounds * load):
        is_on = trial.is_on if mode is None else mode
        made = machine.round(random, was_ahead=was_ahead[index % load], works_ahead=is_on)
        was_ahead[index % load] = is_on
        trial.add(made, TOKENS, load)
        total += made.elapsed
    return total, trial


FAR = Machine(verify=20.0, draft=4.0, way=5.0)
APART = Machine(verify=20.0, draft=6.0, way=0.3)
SHARED = Machine(verify=15.0, draft=3.0, slowdown=1.35)
HOPELESS = Machine(verify=15.0, draft=3.0, way=4.0, slowdown=1.6, hit_rate=0.1)
NO_DRAFT_TIME = Machine(verify=20.0, draft=0.1, way=0.2, slowdown=1.3)


@pytest.mark.parametrize("machine", [SHARED, HOPELESS, NO_DRAFT_TIME])
@pytest.mark.parametrize("load", [1, 4])
def test_it_costs_next_to_nothing_where_it_does_not_pay(machine: Machine, load: int) -> None:
    never, _ = time_of(machine, 1500, False, load=load)
    decided, trial = time_of(machine, 1500, None, load=load)
    assert never / decided > 0.985 and not trial.pays


@pytest.mark.parametrize("machine", [FAR, APART])
@pytest.mark.parametrize("load", [1, 4])
def test_it_is_on_where_it_pays(machine: Machine, load: int) -> None:
    never, _ = time_of(machine, 1500, False, load=load)
    always, _ = time_of(machine, 1500, True, load=load)
    decided, trial = time_of(machine, 1500, None, load=load)
    assert trial.pays
    assert always < 0.9 * never and always / decided > 0.97


def test_it_begins_at_once_where_the_draft_is_far() -> None:
    assert time_of(FAR, 5, None)[1].is_on
    assert not time_of(APART, 5, None)[1].is_on


def test_an_output_of_128_tokens_is_hardly_slower_on_shared_processors() -> None:
    """The first trial comes late enough, and ends soon enough, from the first output on."""
    rounds = 43
    ratios = [time_of(SHARED, rounds, False, seed)[0] / time_of(SHARED, rounds, None, seed)[0] for seed in range(20)]
    assert sum(ratios) / len(ratios) > 0.95


def test_it_follows_a_machine_that_changes() -> None:
    random, trial = Random(3), AheadTrial()
    was_ahead = False
    shares = []
    for machine in (SHARED, FAR, SHARED):
        on = 0
        for index in range(6000):
            made = machine.round(random, was_ahead=was_ahead, works_ahead=trial.is_on)
            was_ahead = trial.is_on
            trial.add(made, TOKENS, 1)
            on += trial.is_on and index >= 4000
        shares.append(on / 2000)
    assert shares[0] < 0.05 and shares[1] > 0.95 and shares[2] < 0.05


def test_rounds_that_are_not_usual_are_not_compared() -> None:
    trial, random = AheadTrial(), Random(1)
    for _ in range(500):
        made = FAR.round(random, was_ahead=False, works_ahead=False)
        trial.add(replace(made, is_usual=False), TOKENS, 1)
        trial.add(replace(made, asked=0), 1.0, 1)
    assert not trial.is_on


def test_a_trial_that_is_clearly_worse_ends_early() -> None:
    """With eight outputs there are enough rounds to tell after four of each."""
    random, trial, worse = Random(1), AheadTrial(), replace(HOPELESS, hit_rate=0.0)
    was_ahead, on = [False] * 8, 0
    for index in range(30 * 8):
        is_on = trial.is_on
        trial.add(worse.round(random, was_ahead=was_ahead[index % 8], works_ahead=is_on), TOKENS, 8)
        was_ahead[index % 8] = is_on
        on += is_on
    assert 2 * 8 < on <= 4 * 8
