"""What trees and merged drafts count."""

from prometheus_client.registry import CollectorRegistry

from coordinator.metrics.tree_metrics import TreeMetrics
from coordinator.peers import DraftShare
from tests.unit.coordinator.metrics.finished_rounds import MadeRound


def test_trees_and_the_shares_of_their_drafts() -> None:
    registry = CollectorRegistry()
    metrics = TreeMetrics(registry)
    metrics.expect(["a", "b", "c"])
    shares = (
        DraftShare(name="a", nodes=(0, 1)),
        DraftShare(name="b", nodes=(0, 2)),
        DraftShare(name="c", is_late=True),
    )
    metrics.add(MadeRound(drafted_count=3, accepted_count=2, is_tree=True, path=(0, 2), shares=shares))
    metrics.add(MadeRound(drafted_count=2, accepted_count=1, path=(0,)))

    def value(name: str, draft: str | None = None) -> float | None:
        return registry.get_sample_value(f"specpair_{name}", {} if draft is None else {"draft": draft})

    assert [value(f"tree_{name}") for name in ("tokens_count", "tokens_sum", "accepted_tokens_sum")] == [1, 3, 2]
    for name, counts in {
        "rounds": [1, 1, 0],
        "draft_tokens": [2, 2, 0],
        "accepted_tokens": [1, 2, 0],
        "late_rounds": [0, 0, 1],
    }.items():
        assert [value(f"merged_{name}_total", draft) for draft in "abc"] == counts
