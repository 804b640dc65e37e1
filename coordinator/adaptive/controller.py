"""What the outputs of a coordinator share when they decide how many tokens to propose."""

from coordinator.adaptive.draft_activity import DraftActivity
from coordinator.adaptive.load import Load
from coordinator.adaptive.output_length import Group, OutputLength
from coordinator.adaptive.workload import Workloads
from specpair.options import Drafter, Rule

TEMPERATURES = (0.0, 0.5, 0.8, 1.2)
"""Upper ends of the ranges within which acceptance is taken to be alike."""


class LengthController:
    """Knows the load, the costs under it, and what is accepted in each group of outputs."""

    def __init__(self) -> None:
        self._load = Load()
        self._workloads = Workloads()
        self._groups: dict[object, Group] = {}

    @property
    def draft_activity(self) -> DraftActivity:
        """To be told of every call to the draft."""
        return self._load.draft_activity

    def enter(self, drafter: Drafter | None, rule: Rule, temperature: float, fixed: int | None) -> OutputLength:
        """For a new output, which proposes `fixed` tokens or, if None, as many as pay. It has to `leave`."""
        key = (drafter, rule, sum(temperature > end for end in TEMPERATURES))
        group = self._groups.setdefault(key, Group())
        return OutputLength(
            load=self._load,
            workloads=self._workloads,
            group=group,
            drafter=drafter,
            fixed=fixed,
            is_greedy=temperature == 0.0,
        )
