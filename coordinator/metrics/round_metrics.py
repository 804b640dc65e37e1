"""Metrics of the rounds of all outputs."""

from prometheus_client import Counter, Histogram
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.finished_round import FinishedRound, RoundKind
from coordinator.metrics.position_collector import PositionCollector
from specpair.options import Drafter, Rule

SPECULATION_LABELS = ("drafter", "rule")
PARTS = ("draft", "verify", "network", "rollback")
BUCKETS = (
    *(0.000001, 0.000002, 0.000005, 0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.00075),
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0),
)
"""The parts differ by orders of magnitude: microseconds of rollback, milliseconds of the target."""


class RoundMetrics:
    """Counters and times of rounds."""

    def __init__(self, registry: CollectorRegistry, longest: int):
        """For proposals of at most `longest` tokens."""
        prefix = "specpair_spec_decode_num"
        self._drafts = Counter(f"{prefix}_drafts", "Rounds with proposals.", SPECULATION_LABELS, registry=registry)
        self._drafted = Counter(f"{prefix}_draft_tokens", "Proposed tokens.", SPECULATION_LABELS, registry=registry)
        self._accepted = Counter(
            f"{prefix}_accepted_tokens",
            "Proposed tokens that the target accepted.",
            SPECULATION_LABELS,
            registry=registry,
        )
        self._positions = PositionCollector(longest)
        registry.register(self._positions)
        rounds = Counter(
            "specpair_spec_decode_rounds",
            "Rounds after an output's first token: with a proposal (draft), without one because none was asked for or "
            "the draft had none (plain), or because the draft failed (fallback).",
            ["kind"],
            registry=registry,
        )
        self._rounds = {kind: rounds.labels(kind.value) for kind in RoundKind}
        times = Histogram(
            "specpair_round_time_seconds",
            "Time of a round by part: draft and verify are computation, network is network and queues of both "
            "calls, rollback is the time that the two caches took to drop rejected tokens.",
            ["part"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._times = {part: times.labels(part) for part in PARTS}
        self._speculation: dict[tuple[Drafter | None, Rule], tuple[Counter, Counter, Counter]] = {}
        for drafter in Drafter:  # a series that begins with its first count hides it from `rate`
            for rule in Rule:
                self._counters(drafter, rule)

    def add(self, ended: FinishedRound) -> None:
        """Counts one round."""
        self._rounds[ended.kind].inc()
        if ended.drafted_count:
            self._add_block(ended)
        if ended.draft_compute is not None:
            self._times["draft"].observe(ended.draft_compute)
        self._times["verify"].observe(ended.verify_compute)
        self._times["network"].observe(ended.network_time)
        self._times["rollback"].observe(ended.rollback_time)

    def _add_block(self, ended: FinishedRound) -> None:
        drafts, drafted, accepted = self._counters(ended.drafter, ended.rule)
        drafts.inc()
        drafted.inc(ended.drafted_count)
        accepted.inc(ended.accepted_count)
        self._positions.add(ended.depth, ended.accepted_count)

    def _counters(self, drafter: Drafter | None, rule: Rule) -> tuple[Counter, Counter, Counter]:
        """The counters, looked up once: finding labels costs as much as all the rest."""
        known = self._speculation.get((drafter, rule))
        if known is None:
            labels = speculation_labels(drafter, rule)
            known = (self._drafts.labels(*labels), self._drafted.labels(*labels), self._accepted.labels(*labels))
            self._speculation[drafter, rule] = known
        return known


def speculation_labels(drafter: Drafter | None, rule: Rule) -> tuple[str, str]:
    """Values of SPECULATION_LABELS."""
    return ("unknown" if drafter is None else drafter.value, rule.value)
