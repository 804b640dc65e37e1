"""The state that all outputs of a coordinator share for choosing how many tokens to propose."""

from collections import defaultdict

from coordinator.adaptive.group import Group
from coordinator.adaptive.load import Load
from coordinator.adaptive.output_length import OutputLength
from coordinator.adaptive.pass_costs import PassCosts
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.workload import Workload
from coordinator.adaptive.worth import Worth, worth_of
from specpair.model_info import PassCost
from specpair.options import Drafter, Rule

TEMPERATURES = (0.0, 0.5, 0.8, 1.2)
"""Upper ends of temperature ranges; acceptance is assumed to be similar within each."""
WITH_MODEL = (None, Drafter.MODEL, Drafter.NGRAM_MODEL)
"""Drafters of which a step is a pass of the draft's model. Their greedy chains end early mostly for want of
confidence; others also where they know nothing more, or are not deeper."""


def range_of(temperature: float) -> int:
    """The number of the range that a temperature is in."""
    return sum(temperature > end for end in TEMPERATURES)


class LengthController:
    """Holds the load, what passes and rounds cost, and the acceptance of each group of outputs."""

    def __init__(self) -> None:
        self._load = Load()
        self._passes = PassCosts()
        self._draft_passes = PassCosts()
        """Passes of the draft's model, as published."""
        self._plain: dict[int, RoundCosts] = defaultdict(RoundCosts)
        """Of plain rounds, by level of load."""
        self._workloads: dict[Drafter | None, Workload] = {}
        self._groups: dict[object, Group] = {}
        self._latest: Group | None = None
        """Of the latest output that may have proposals."""

    def publish(
        self, target: tuple[PassCost, ...], draft: tuple[PassCost, ...] = (), cached_token_seconds: float = 0.0
    ) -> None:
        """Takes what passes cost when target and draft were started, and how much longer those of the target take for
        each token in its cache; does nothing if they are the same as before."""
        self._passes.publish(target, cached_token_seconds)
        self._draft_passes.publish(draft)

    @property
    def load(self) -> Load:
        """All outputs that are being generated."""
        return self._load

    def enter(
        self,
        drafter: Drafter | None,
        rule: Rule,
        temperature: float,
        fixed: int | None,
        tree_tokens: int = 0,
        *,
        has_shadows: bool = False,
    ) -> OutputLength:
        """Registers a new output, which proposes `fixed` tokens or, if None, as many as pay; with `tree_tokens` these
        are the longest path of a tree of so many. `has_shadows`: it probes by shadow proposals. It must call `leave`.
        """
        key = (drafter, rule, range_of(temperature), tree_tokens, has_shadows)
        if key not in self._groups:
            self._groups[key] = Group(self._workload(drafter))
        if fixed != 0:
            self._latest = self._groups[key]
        is_greedy = temperature == 0.0
        return OutputLength(
            self._groups[key],
            fixed=fixed,
            is_greedy=is_greedy,
            tree_tokens=tree_tokens,
            has_shadows=has_shadows,
            ends_by_confidence=is_greedy and drafter in WITH_MODEL and not tree_tokens,
        )

    def worth(self, drafter: Drafter | None, longest: int) -> Worth | None:
        """What proposals of at most `longest` tokens are worth now, by the latest output's drafter, or by `drafter`
        before any; None while it is unknown what passes take."""
        if not self._passes.is_known:
            return None
        latest = self._latest
        workload = self._workload(drafter) if latest is None else latest.workload
        rates = latest.acceptance.rates() if latest is not None and latest.acceptance.is_known else None
        return worth_of(workload.times(), max(self._load.output_count, 1), rates, longest)

    def _workload(self, drafter: Drafter | None) -> Workload:
        if drafter not in self._workloads:
            passes = self._draft_passes if drafter in WITH_MODEL else PassCosts()
            self._workloads[drafter] = Workload(self._load, self._passes, self._plain.__getitem__, passes.time)
        return self._workloads[drafter]
