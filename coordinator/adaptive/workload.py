"""What is known of the rounds under each load."""

from copy import deepcopy

from coordinator.adaptive.plain_trial import PlainTrial
from coordinator.adaptive.round_costs import RoundCosts


class Workload:
    """Rounds with one drafter under one level of load."""

    def __init__(self, costs: RoundCosts) -> None:
        self.costs = costs
        self.trial = PlainTrial()
        self.explorer_count = 0
        """Outputs that propose only to see what it costs."""


class Workloads:
    """All of them, by drafter and level of load."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, int], Workload] = {}

    def find(self, drafter: object, level: int) -> Workload:
        """The workload; a new one takes the costs of the nearest level as a beginning."""
        found = self._known.get((drafter, level))
        if found is None:
            found = self._known[drafter, level] = Workload(self._nearest_costs(drafter, level))
        return found

    def _nearest_costs(self, drafter: object, level: int) -> RoundCosts:
        known = {other: work.costs for (name, other), work in self._known.items() if name == drafter}
        if not known:
            return RoundCosts()
        costs = deepcopy(known[min(known, key=lambda other: abs(other - level))])
        costs.loosen()
        return costs
