"""The state that all outputs of a coordinator share for choosing how many tokens to propose."""

from collections import defaultdict

from coordinator.adaptive.acceptance import GroupAcceptance
from coordinator.adaptive.load import Load
from coordinator.adaptive.output_length import OutputLength, Shared, Workload
from coordinator.adaptive.probe_budget import ProbeBudget
from specpair.options import Drafter, Rule

TEMPERATURES = (0.0, 0.5, 0.8, 1.2)
"""Upper ends of temperature ranges; acceptance is assumed to be similar within each."""


class LengthController:
    """Holds the load, the round costs for each drafter, and the acceptance of each group of outputs."""

    def __init__(self) -> None:
        self._load = Load()
        self._workloads: dict[Drafter | None, dict[int, Workload]] = defaultdict(lambda: defaultdict(Workload))
        self._groups: dict[object, GroupAcceptance] = defaultdict(GroupAcceptance)
        self._budgets: dict[object, ProbeBudget] = defaultdict(ProbeBudget)

    @property
    def load(self) -> Load:
        """All outputs that are being generated."""
        return self._load

    def enter(self, drafter: Drafter | None, rule: Rule, temperature: float, fixed: int | None) -> OutputLength:
        """Registers a new output, which proposes `fixed` tokens or, if None, as many as pay. It must call `leave`."""
        key = (drafter, rule, sum(temperature > end for end in TEMPERATURES))
        shared = Shared(
            load=self._load,
            workloads=self._workloads[drafter],
            acceptance=self._groups[key],
            budget=self._budgets[key],
        )
        return OutputLength(shared, fixed=fixed, is_greedy=temperature == 0.0)
