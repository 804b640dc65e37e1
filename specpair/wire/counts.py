"""Encodes rows of counts to messages, without torch: also for processes without a model."""

from collections.abc import Sequence

import numpy as np

from specpair.speculation.count_row import TOTAL, TOTAL_LOG2, UINT32, CountRow
from specpair.v1.proposal_pb2 import (
    TENSOR_TYPE_FLOAT32,
    DenseDistributions,
    Distributions,
    OneHotDistributions,
    SparseDistributions,
)
from specpair.v1.proposal_pb2 import Tensor as TensorMessage

FLOAT32 = np.dtype("<f4")


def encode_counts(rows: Sequence[CountRow]) -> Distributions:
    """Encodes rows of counts, at least one; as one-hot if all rows are."""
    if all(row.is_one_hot for row in rows):
        return encode_one_hot()
    sparse = SparseDistributions(
        support_sizes=[len(row.token_ids) for row in rows],
        token_ids=b"".join([np.asarray(row.token_ids, dtype=UINT32).data for row in rows]),
        counts=b"".join([np.asarray(row.counts, dtype=UINT32).data for row in rows]),
        total_log2=TOTAL_LOG2,
    )
    return Distributions(sparse=sparse)


def encode_one_hot() -> Distributions:
    """Encodes rows with all mass on the drafted tokens."""
    return Distributions(one_hot=OneHotDistributions())


def encode_dense_counts(rows: Sequence[CountRow], vocab_size: int) -> Distributions:
    """Encodes rows of counts as rows of probabilities [N, V]; exact, since a count has at most 24 bits."""
    dense = np.zeros((len(rows), vocab_size), dtype=FLOAT32)
    for place, row in zip(dense, rows, strict=True):
        place[np.asarray(row.token_ids)] = np.asarray(row.counts, dtype=FLOAT32) / TOTAL
    tensor = TensorMessage(type=TENSOR_TYPE_FLOAT32, shape=dense.shape, data=dense.tobytes())
    return Distributions(dense=DenseDistributions(probabilities=tensor))
