"""Batches that do not fit together never reach a runner."""

import pytest

from specpair.caches.holding import Holding, Segment
from specpair.models.batch import Batch


def test_a_batch_has_a_position_for_each_token() -> None:
    """The same segment twice, with too few tokens: a work that was fed twice in one pass."""
    segments = [Segment(Holding(7, None), 6, 1), Segment(Holding(7, None), 6, 1)]
    assert Batch.of_chains(segments, [1, 2], [1, 1]).positions == [6, 6]
    with pytest.raises(AssertionError):
        Batch.of_chains(segments, [1], [1, 1])
