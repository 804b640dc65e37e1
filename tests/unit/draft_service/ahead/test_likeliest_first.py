"""Proposals that are ready in time, simulated: passes of the likeliest branches, as many as are quick together, against
passes of all branches, and against the best fixed number of branches, which nobody knows beforehand."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import pytest

from draft_service.ahead.odds import BONUS_PRIOR, CORRECTION_PRIOR
from specpair.engine.gathering import FIRST_COUNT, Gathering

Cost = Callable[[int], float]
"""Milliseconds of a pass over its rows."""
ROWS = {1: 16, 8: 64}
"""Branches by the number of sequences."""


@dataclass
class Branch:
    chance: float
    steps: int
    is_bonus: bool
    """Or looks at the row that all branches after the whole block begin with."""


@dataclass(frozen=True)
class Setting:
    cost: Cost
    deadline: float
    """Milliseconds until the verdicts come, of all sequences together."""
    block: int
    acceptance: float
    sequences: int

    def branches(self, rows: int) -> list[Branch]:
        """The likeliest of one sequence."""
        chances = [
            (self.acceptance**n * (1.0 - self.acceptance) * rank, False)
            for n in range(self.block)
            for rank in CORRECTION_PRIOR
        ]
        chances += [(self.acceptance**self.block * rank, True) for rank in BONUS_PRIOR]
        best = sorted(chances, reverse=True)[: rows // self.sequences]
        return [Branch(chance, self.block, is_bonus) for chance, is_bonus in best]


def settings() -> Iterator[Setting]:
    """Devices whose rows are nearly free, cost something beyond a pace, or cost their whole time."""
    costs: list[Cost] = [
        lambda rows: max(1.0, 0.3 + 0.02 * rows),
        lambda rows: max(1.0, 0.3 + 0.1 * rows),
        lambda rows: max(3.0, 0.5 + 0.15 * rows),
        lambda rows: 0.5 + 0.25 * rows,
    ]
    for chosen in product(costs, (14.0, 40.0), (4, 6), (0.85, 0.6), (1, 8)):
        yield Setting(*chosen)


def in_time(setting: Setting, rows: int, quick: Gathering | None) -> float:
    """The chance that the proposal of a sequence is ready; without `quick`, passes have all branches."""
    corrections: list[Branch] = []
    looks: list[tuple[Branch, list[Branch]]] = []
    for _ in range(setting.sequences):
        own = setting.branches(rows)
        bonus = [branch for branch in own if branch.is_bonus]
        corrections += [branch for branch in own if not branch.is_bonus]
        if bonus:
            looks.append((Branch(sum(branch.chance for branch in bonus), 1, True), bonus))
    waiting, now, ready = [*corrections, *(look for look, _ in looks)], 0.0, 0.0
    while waiting:
        waiting.sort(key=lambda branch: -branch.chance)
        batch = waiting if quick is None else waiting[: quick.quick_rows()]
        now += setting.cost(len(batch))
        if quick is not None:
            quick.add_pass(len(batch), len(batch), setting.cost(len(batch)) / 1000)
        if now > setting.deadline:
            break
        for branch in list(batch):
            branch.steps -= 1
            if not branch.steps:
                waiting.remove(branch)
                begun = next((own for look, own in looks if look is branch), [])
                waiting += begun
                ready += 0.0 if begun else branch.chance
    return ready / setting.sequences


def measured(setting: Setting) -> Gathering:
    """What passes cost, seen in earlier rounds."""
    gathering = Gathering()
    for rows in (1, 2, setting.sequences, 24, 64) * FIRST_COUNT:
        gathering.add_pass(rows, rows, setting.cost(rows) / 1000)
    return gathering


def best_of(setting: Setting, numbers: Iterable[int]) -> float:
    """With the best of these numbers of branches in all passes."""
    return max(in_time(setting, rows, None) for rows in numbers)


@pytest.mark.parametrize(("sequences", "gain"), [(1, 1.1), (8, 1.8)])
def test_quick_passes_of_the_likeliest_come_near_the_best_number_of_branches(sequences: int, gain: float) -> None:
    """`gain` is over passes of all branches."""
    own, most = [setting for setting in settings() if setting.sequences == sequences], ROWS[sequences]
    together = fmean(in_time(setting, most, None) for setting in own)
    best = fmean(best_of(setting, range(sequences, most + 1, sequences)) for setting in own)
    likeliest = fmean(in_time(setting, most, measured(setting)) for setting in own)
    assert likeliest > gain * together
    assert likeliest > 0.93 * best
