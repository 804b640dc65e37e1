"""The trials of working ahead of all groups of outputs."""

from collections import defaultdict
from collections.abc import Mapping

from coordinator.adaptive.ahead_trial import AheadTrial
from coordinator.adaptive.controller import range_of
from specpair.options import Drafter, Rule


class AheadTrials:
    """Outputs are compared with those of the same drafter, the same rule and a similar temperature."""

    def __init__(self) -> None:
        self._groups: dict[object, dict[int, AheadTrial]] = defaultdict(lambda: defaultdict(AheadTrial))

    def of(self, drafter: Drafter | None, rule: Rule, temperature: float) -> Mapping[int, AheadTrial]:
        """The trials of one group by level of load."""
        return self._groups[drafter, rule, range_of(temperature)]
