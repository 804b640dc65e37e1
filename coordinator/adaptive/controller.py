"""What the outputs of a coordinator share when they decide how many tokens to propose."""

from collections import defaultdict

from coordinator.adaptive.acceptance import GroupAcceptance
from coordinator.adaptive.load import Load
from coordinator.adaptive.output_length import OutputLength, Shared, Workload
from coordinator.adaptive.probe_budget import ProbeBudget
from specpair.options import Drafter, Rule

TEMPERATURES = (0.0, 0.5, 0.8, 1.2)
"""Upper ends of the ranges within which acceptance is taken to be alike."""


class LengthController:
    """Knows the load, what rounds cost with each drafter, and what is accepted in each group of outputs."""

    def __init__(self) -> None:
        """To be told of every call to the draft."""
        self._load = Load()
        self._workloads: dict[Drafter | None, dict[int, Workload]] = defaultdict(lambda: defaultdict(Workload))
        self._groups: dict[object, GroupAcceptance] = defaultdict(GroupAcceptance)
        self._budgets: dict[object, ProbeBudget] = defaultdict(ProbeBudget)

    def enter(self, drafter: Drafter | None, rule: Rule, temperature: float, fixed: int | None) -> OutputLength:
        """For a new output, which proposes `fixed` tokens or, if None, as many as pay. It has to `leave`."""
        key = (drafter, rule, sum(temperature > end for end in TEMPERATURES))
        shared = Shared(
            load=self._load,
            workloads=self._workloads[drafter],
            acceptance=self._groups[key],
            budget=self._budgets[key],
        )
        return OutputLength(shared, fixed=fixed, is_greedy=temperature == 0.0)
