"""Metrics of proposals that are trees, and of drafts whose proposals are merged into one."""

from collections.abc import Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.finished_round import FinishedRound

NODES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


class TreeMetrics:
    """Sizes of trees, what was accepted of them, and the share of each of several drafts."""

    def __init__(self, registry: CollectorRegistry):
        self._nodes = Histogram("specpair_tree_tokens", "Tokens of a tree.", buckets=NODES, registry=registry)
        self._accepted = Histogram(
            "specpair_tree_accepted_tokens",
            "Tokens of the path of a tree that was accepted.",
            buckets=DEPTHS,
            registry=registry,
        )
        prefix, label = "specpair_merged", ["draft"]
        self._drafted = Counter(
            f"{prefix}_draft_tokens", "Tokens of merged proposals, by who proposed them.", label, registry=registry
        )
        self._taken = Counter(f"{prefix}_accepted_tokens", "Those that were accepted.", label, registry=registry)
        self._rounds = Counter(
            f"{prefix}_rounds", "Rounds with merged proposals, by who proposed tokens.", label, registry=registry
        )
        self._late = Counter(f"{prefix}_late_rounds", "Rounds that did not wait for a draft.", label, registry=registry)

    def expect(self, names: Sequence[str]) -> None:
        """Shows these drafts from the start: a series that begins with its first count hides it from `rate`."""
        for name in names:
            for counter in (self._drafted, self._taken, self._rounds, self._late):
                counter.labels(name)

    def add(self, ended: FinishedRound) -> None:
        """Counts one round, if its proposal was a tree or of several drafts."""
        if ended.is_tree:
            self._nodes.observe(ended.drafted_count)
            self._accepted.observe(ended.accepted_count)
        for share in ended.shares:
            self._drafted.labels(share.name).inc(len(share.nodes))
            self._taken.labels(share.name).inc(len(set(ended.path).intersection(share.nodes)))
            self._rounds.labels(share.name).inc(bool(share.nodes))
            self._late.labels(share.name).inc(share.is_late)
