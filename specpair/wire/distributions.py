"""Encodes distributions to messages and decodes them.

Received messages are not trusted: every length is checked before it is used, and any mistake raises
InvalidDistributionError, which names the field. A drafted token with probability 0 is refused, because an honest draft
cannot have drawn it.
"""

import math
from array import array

import numpy as np
import torch
from torch import Tensor

from specpair.errors import InvalidDistributionError
from specpair.native.library import quick_functions
from specpair.speculation.count_row import UINT32
from specpair.speculation.counted_rows import CountedRows, SentRows
from specpair.speculation.draft_rows import DraftRows
from specpair.v1.proposal_pb2 import (
    TENSOR_TYPE_FLOAT32,
    DenseDistributions,
    Distributions,
    SparseDistributions,
)
from specpair.v1.proposal_pb2 import Tensor as TensorMessage
from specpair.wire.limits import MAX_TOTAL_LOG2
from specpair.wire.tensors import FLOAT32, encode_tensor

SUM_TOLERANCE = 1e-4
"""How far the sum of a dense row may be from 1. Decoding normalises the row."""

_FIELD = "proposal.distributions"


def encode_dense(probabilities: Tensor) -> Distributions:
    """Encodes rows of probabilities [N, V], float32."""
    return Distributions(dense=DenseDistributions(probabilities=encode_tensor(probabilities)))


def decoded_dense(probabilities: Tensor) -> Tensor:
    """The rows [N, V] that `decode` gives for `encode_dense(probabilities)`, normalised in float64: draw from these.

    Uses a running sum, whose bits depend neither on the number of rows nor on threads.
    """
    rows = probabilities.float().double()
    return rows / rows.cumsum(-1)[..., -1:]


def decode(distributions: Distributions | None, token_ids: list[int], vocab_size: int) -> SentRows:
    """The rows [K, S] from which tokens [K] were drawn, in numpy. An absent or unset message means one-hot.

    Raises InvalidDistributionError.
    """
    _check_tokens(token_ids, vocab_size)
    encoding = distributions.WhichOneof("encoding") if distributions is not None else None
    if distributions is None or encoding is None or encoding == "one_hot":
        return CountedRows.one_hot(token_ids, vocab_size)
    if encoding == "sparse":
        return _decode_sparse(distributions.sparse, token_ids, vocab_size)
    if encoding == "kept":
        raise InvalidDistributionError(f"{_FIELD}.kept", "names distributions that are not here")
    if encoding == "withheld":
        raise InvalidDistributionError(f"{_FIELD}.withheld", "is for calls on condition alone")
    return _decode_dense(distributions.dense.probabilities, np.array(token_ids, dtype=np.int64), vocab_size)


def _check_tokens(token_ids: list[int], vocab_size: int) -> None:
    """Refuses ids outside the vocabulary."""
    for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= token_id < vocab_size:
            raise InvalidDistributionError(
                "proposal.token_ids", f"has {token_id}; ids are below {vocab_size}", limit=vocab_size - 1
            )


def _decode_sparse(message: SparseDistributions, tokens: list[int], vocab_size: int) -> CountedRows:
    _check_row_count(message, len(tokens))  # before the sizes become a list
    numbers = array("q", [*message.support_sizes, *tokens, *tokens])  # the last are to be the drawn tokens' counts
    rows = CountedRows(numbers, message.token_ids, message.counts, message.total_log2, vocab_size)
    if not _is_sound(rows):
        checked = _checked(message, np.array(tokens, dtype=np.int64), vocab_size)
        rows.numbers = array("q", checked.tobytes())
    return rows


def _is_sound(rows: CountedRows) -> bool:
    """Whether the compiled library finds nothing wrong, and the rows ascend. It fills in the drawn tokens' counts."""
    functions = quick_functions()
    return functions is not None and not functions.specpair_check_rows(
        *(rows.count, rows.numbers.buffer_info()[0]),
        *(rows.id_bytes, len(rows.id_bytes), rows.count_bytes, len(rows.count_bytes)),
        *(rows.total_log2, rows.vocab_size),
    )


def _checked(message: SparseDistributions, drafted: np.ndarray, vocab_size: int) -> np.ndarray:
    """The numbers of `CountedRows` as [3, K]. Raises InvalidDistributionError, which says what is wrong."""
    sizes = _support_sizes(message, len(drafted), vocab_size)
    flat_ids = _numbers(message.token_ids, int(sizes.sum()), "token_ids")
    flat_counts = _numbers(message.counts, int(sizes.sum()), "counts")
    if not len(drafted):
        return np.zeros((3, 0), dtype=np.int64)
    if flat_ids.max() >= vocab_size:
        raise _sparse_error("token_ids", f"has an id that is not below {vocab_size}")
    if not flat_counts.all():
        raise _sparse_error("counts", "has a zero")
    firsts = sizes.cumsum() - sizes
    _check_unique(flat_ids, firsts)
    if (np.add.reduceat(flat_counts, firsts, dtype=np.int64) != 1 << message.total_log2).any():
        raise _sparse_error("counts", "has a row that does not sum to 2^total_log2")
    return np.stack((sizes, drafted, _counts_of(drafted, flat_ids, flat_counts, sizes)))


def _support_sizes(message: SparseDistributions, row_count: int, vocab_size: int) -> np.ndarray:
    """Support sizes [K] int64, checked against their limits. Checks total_log2 too."""
    if message.total_log2 > MAX_TOTAL_LOG2:
        raise _sparse_error("total_log2", f"is {message.total_log2}; it is at most {MAX_TOTAL_LOG2}")
    _check_row_count(message, row_count)
    sizes = np.array(list(message.support_sizes), dtype=np.int64)
    if ((sizes < 1) | (sizes > vocab_size)).any():
        raise _sparse_error("support_sizes", f"has a size that is not between 1 and {vocab_size}")
    return sizes


def _check_row_count(message: SparseDistributions, row_count: int) -> None:
    if len(message.support_sizes) != row_count:
        raise _sparse_error("support_sizes", f"has {len(message.support_sizes)} rows for {row_count} tokens")


def _numbers(data: bytes, count: int, field: str) -> np.ndarray:
    """uint32 numbers [count], a view of `data`."""
    if len(data) != count * UINT32.itemsize:
        raise _sparse_error(field, f"has {len(data)} bytes; support_sizes require {count * UINT32.itemsize}")
    return np.frombuffer(data, dtype=UINT32)


def _check_unique(token_ids: np.ndarray, firsts: np.ndarray) -> None:
    """Refuses a row that has a token twice: the target would subtract it twice. Rows begin at `firsts`. A model's rows
    ascend and need no sorting; others are sorted for the check."""
    if not _falls(token_ids, firsts).any():
        return
    rows = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(token_ids)))
    if _falls(token_ids[np.lexsort((token_ids, rows))], firsts).any():
        raise _sparse_error("token_ids", "has a token twice in one row")


def _falls(token_ids: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Marks where tokens within a row do not ascend."""
    falls = token_ids[1:] <= token_ids[:-1]
    falls[firsts[1:] - 1] = False
    return falls


def _counts_of(drafted: np.ndarray, flat_ids: np.ndarray, flat_counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The count of each drafted token [K] in its row. Refuses rows that do not have it."""
    is_own = flat_ids == np.repeat(drafted, sizes)
    counts = np.add.reduceat(flat_counts * is_own, sizes.cumsum() - sizes, dtype=np.int64)
    _check_drafted(counts > 0)
    return counts


def _check_drafted(possible: np.ndarray) -> None:
    """Raises unless every drafted token has a probability above 0: `possible` [K] bool."""
    if not possible.all():
        raise InvalidDistributionError(_FIELD, "gives a drafted token no probability")


def _decode_dense(message: TensorMessage, drafted: np.ndarray, vocab_size: int) -> DraftRows:
    field = f"{_FIELD}.dense.probabilities"
    if message.type != TENSOR_TYPE_FLOAT32:
        raise InvalidDistributionError(f"{field}.type", "must be TENSOR_TYPE_FLOAT32")
    shape = tuple(message.shape)
    if len(shape) != 2 or shape[0] != len(drafted) or not 1 <= shape[1] <= vocab_size:
        raise InvalidDistributionError(
            f"{field}.shape", f"is {shape[:4]}; it must be ({len(drafted)}, 1 .. {vocab_size})"
        )
    size = math.prod(shape) * FLOAT32.itemsize
    if len(message.data) != size:
        raise InvalidDistributionError(f"{field}.data", f"has {len(message.data)} bytes; the shape requires {size}")
    rows = np.frombuffer(message.data, dtype=FLOAT32).reshape(shape)
    if not _are_distributions(rows):
        raise InvalidDistributionError(f"{field}.data", f"has a row that does not sum to 1 within {SUM_TOLERANCE}")
    decoded = decoded_dense(torch.from_numpy(rows.astype(np.float32))).numpy()
    drawn = decoded[np.arange(len(drafted)), np.minimum(drafted, shape[1] - 1)]
    _check_drafted((drafted < shape[1]) & (drawn > 0))
    return DraftRows(np.broadcast_to(np.arange(shape[1]), shape), decoded, drawn)


def _are_distributions(rows: np.ndarray) -> bool:
    """Whether rows [K, V] are non-negative and sum to 1. False for NaN, which fails every comparison."""
    with np.errstate(invalid="ignore"):
        return bool((rows >= 0).all() and (np.abs(rows.sum(-1, dtype=np.float64) - 1.0) <= SUM_TOLERANCE).all())


def _sparse_error(field: str, problem: str) -> InvalidDistributionError:
    return InvalidDistributionError(f"{_FIELD}.sparse.{field}", problem)
