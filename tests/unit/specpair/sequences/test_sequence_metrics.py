"""Metrics of open sequences, with or without a model."""

from collections import Counter

from prometheus_client.registry import CollectorRegistry

from specpair.sequences.sequence_limits import NoRoom
from specpair.sequences.sequence_metrics import add_sequence_metrics


class CountedSequences:
    expired_count = 3

    def __init__(self) -> None:
        self.refusals = Counter({NoRoom.CLIENT_LIMIT: 4})

    def __len__(self) -> int:
        return 2


def test_sequences_are_counted() -> None:
    registry = CollectorRegistry()
    add_sequence_metrics(registry, CountedSequences())
    value = registry.get_sample_value
    assert value("specpair_sequences_open") == 2
    assert value("specpair_expired_sequences_total") == 3
    assert value("specpair_sequence_refusals_total", {"reason": "client_limit"}) == 4
    assert value("specpair_sequence_refusals_total", {"reason": "full"}) == 0
