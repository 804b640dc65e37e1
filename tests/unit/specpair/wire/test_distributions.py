import math
import struct

import numpy as np
import pytest
import torch
from google.protobuf.message import DecodeError
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.errors import InvalidDistributionError
from specpair.speculation.count_row import TOTAL_LOG2, CountRow
from specpair.speculation.draft_rows import draw
from specpair.speculation.sparse_rows import draw_counts, sparsify
from specpair.v1.proposal_pb2 import DenseDistributions, Distributions, SparseDistributions
from specpair.v1.proposal_pb2 import Tensor as TensorMessage
from specpair.wire.counts import encode_counts, encode_one_hot
from specpair.wire.distributions import decode, decoded_dense, encode_dense

pytestmark = pytest.mark.usefixtures("arithmetic")


def random_rows(seed: int, count: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, vocab_size, generator=generator) * 3).softmax(-1)


def over_the_wire(message: Distributions) -> Distributions:
    return Distributions.FromString(message.SerializeToString())


def uint32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def float32(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def sparse(sizes: list[int], ids: bytes, counts: bytes, total_log2: int = 2) -> Distributions:
    message = SparseDistributions(support_sizes=sizes, token_ids=ids, counts=counts, total_log2=total_log2)
    return Distributions(sparse=message)


def dense(shape: list[int], data: bytes, kind: int = 1) -> Distributions:
    tensor = TensorMessage(type=kind, shape=shape, data=data)  # pyright: ignore[reportArgumentType]
    return Distributions(dense=DenseDistributions(probabilities=tensor))


def assert_refused(message: Distributions | None, tokens: list[int], vocab_size: int, field: str) -> None:
    with pytest.raises(InvalidDistributionError) as caught:
        decode(message, tokens, vocab_size)
    assert caught.value.metadata["field"] == field


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(2, 400), st.booleans())
def test_sparse_rows_arrive_as_they_were_sent(seed, count, vocab_size, shuffled):
    """In the order of their ids, as the model's come, or in any other."""
    rows = sparsify(random_rows(seed, count, vocab_size))
    noise = np.random.default_rng(seed)
    if shuffled:
        orders = [noise.permutation(len(row.token_ids)) for row in rows]
        rows = [CountRow(*(np.asarray(part)[order] for part in row)) for row, order in zip(rows, orders, strict=True)]
    tokens = [draw_counts(row, int(noise.integers(2**53))) for row in rows]
    decoded = decode(over_the_wire(encode_counts(rows)), tokens, vocab_size)
    for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if len(decoded.token_ids[i]) == 1:  # all rows were one-hot
            assert decoded.token_ids[i] == token and decoded.probabilities[i] == decoded.drawn[i] == 1.0
            continue
        support, counts = len(row.token_ids), np.asarray(row.counts)
        assert decoded.token_ids[i, :support].tolist() == list(row.token_ids)
        assert decoded.probabilities[i, :support].tolist() == (counts * 2.0**-TOTAL_LOG2).tolist()
        assert not decoded.probabilities[i, support:].any()
        assert decoded.probabilities[i].sum() == 1.0
        assert decoded.drawn[i] == counts[list(row.token_ids).index(token)] * 2.0**-TOTAL_LOG2


@given(st.integers(0, 2**31), st.integers(0, 4), st.integers(1, 200))
def test_dense_rows_arrive_as_they_were_sampled(seed, count, vocab_size):
    sampled = decoded_dense(random_rows(seed, count, vocab_size))
    uniforms = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tokens = draw(sampled, uniforms).tolist()
    decoded = decode(over_the_wire(encode_dense(random_rows(seed, count, vocab_size))), tokens, vocab_size)
    assert decoded.probabilities.tolist() == sampled.tolist()
    assert decoded.token_ids.tolist() == [list(range(vocab_size))] * count
    assert decoded.drawn.tolist() == [row[token] for row, token in zip(sampled.tolist(), tokens, strict=True)]


@pytest.mark.parametrize("message", [None, Distributions(), encode_one_hot()], ids=["absent", "unset", "one_hot"])
def test_absent_unset_and_one_hot_put_all_mass_on_the_token(message):
    decoded = decode(message, [3, 0], 4)
    assert decoded.token_ids.tolist() == [[3], [0]] and decoded.probabilities.tolist() == [[1.0], [1.0]]
    assert decoded.drawn.tolist() == [1.0, 1.0]
    assert decode(message, [], 4).token_ids.shape == (0, 1)


def test_the_bytes_are_little_endian_and_hold_only_the_support():
    message = encode_counts(sparsify(torch.tensor([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]))).sparse
    assert list(message.support_sizes) == [2, 1] and message.total_log2 == TOTAL_LOG2
    assert message.token_ids == uint32(0, 2, 1)
    assert message.counts == uint32(1 << 22, 3 << 22, 1 << 24)
    tensor = encode_dense(torch.tensor([[0.25, 0.75]])).dense.probabilities
    assert list(tensor.shape) == [1, 2] and tensor.data == float32(0.25, 0.75)


def test_a_draft_of_a_smaller_vocabulary_is_understood():
    decoded = decode(encode_dense(torch.tensor([[0.5, 0.5]])), [1], vocab_size=10)
    assert decoded.token_ids.tolist() == [[0, 1]]


def test_dense_rows_are_normalised():
    decoded = decode(dense([1, 2], float32(0.50002, 0.50002)), [0], 2)
    assert decoded.probabilities.tolist() == [[0.5, 0.5]]


SPARSE = "proposal.distributions.sparse"
VALID = (uint32(0, 2), uint32(3, 1))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (sparse([2, 2], *VALID), f"{SPARSE}.support_sizes"),
        (sparse([], *VALID), f"{SPARSE}.support_sizes"),
        (sparse([0], b"", b""), f"{SPARSE}.support_sizes"),
        (sparse([6], uint32(*range(6)), uint32(*range(1, 7))), f"{SPARSE}.support_sizes"),
        (sparse([2**32 - 1], *VALID), f"{SPARSE}.support_sizes"),
        (sparse([2], VALID[0] + b"\0", VALID[1]), f"{SPARSE}.token_ids"),
        (sparse([2], uint32(0), VALID[1]), f"{SPARSE}.token_ids"),
        (sparse([2], uint32(0, 5), VALID[1]), f"{SPARSE}.token_ids"),
        (sparse([2], uint32(0, 2**32 - 1), VALID[1]), f"{SPARSE}.token_ids"),
        (sparse([2], uint32(0, 0), VALID[1]), f"{SPARSE}.token_ids"),
        (sparse([2], VALID[0], uint32(3, 1, 0)), f"{SPARSE}.counts"),
        (sparse([2], VALID[0], b""), f"{SPARSE}.counts"),
        (sparse([2], VALID[0], uint32(4, 0)), f"{SPARSE}.counts"),
        (sparse([2], VALID[0], uint32(3, 2)), f"{SPARSE}.counts"),
        (sparse([2], VALID[0], uint32(2**32 - 1, 5)), f"{SPARSE}.counts"),
        (sparse([2], *VALID, total_log2=31), f"{SPARSE}.total_log2"),
        (sparse([2], *VALID, total_log2=2**32 - 1), f"{SPARSE}.total_log2"),
        (sparse([2], uint32(1, 2), VALID[1]), "proposal.distributions"),
    ],
)
def test_malformed_sparse_rows_are_refused(message, field):
    assert decode(sparse([2], *VALID), [0], 5).probabilities.tolist() == [[0.75, 0.25]]
    assert_refused(message, [0], 5, field)


DENSE = "proposal.distributions.dense.probabilities"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (dense([1, 2], float32(0.5, 0.5), kind=0), f"{DENSE}.type"),
        (dense([1, 2], float32(0.5, 0.5), kind=9), f"{DENSE}.type"),
        (dense([2], float32(0.5, 0.5)), f"{DENSE}.shape"),
        (dense([1, 1, 2], float32(0.5, 0.5)), f"{DENSE}.shape"),
        (dense([2, 1], float32(0.5, 0.5)), f"{DENSE}.shape"),
        (dense([1, 0], b""), f"{DENSE}.shape"),
        (dense([1, 3], float32(0.5, 0.5, 0.0)), f"{DENSE}.shape"),
        (dense([1, 2**32 - 1], float32(0.5, 0.5)), f"{DENSE}.shape"),
        (dense([1, 2], float32(0.5, 0.25, 0.25)), f"{DENSE}.data"),
        (dense([1, 2], b""), f"{DENSE}.data"),
        (dense([1, 2], float32(0.5, 0.501)), f"{DENSE}.data"),
        (dense([1, 2], float32(0.0, 0.0)), f"{DENSE}.data"),
        (dense([1, 2], float32(1.5, -0.5)), f"{DENSE}.data"),
        (dense([1, 2], float32(math.nan, 1.0)), f"{DENSE}.data"),
        (dense([1, 2], float32(math.inf, 1.0)), f"{DENSE}.data"),
        (dense([1, 2], float32(math.inf, -math.inf)), f"{DENSE}.data"),
        (dense([1, 2], b"\x01\x00\x80\x7f\x00\x00\x80\x3f"), f"{DENSE}.data"),  # a signalling NaN
        (dense([1, 2], float32(0.0, 1.0)), "proposal.distributions"),
        (Distributions(dense=DenseDistributions()), f"{DENSE}.type"),
    ],
)
def test_malformed_dense_rows_are_refused(message, field):
    assert decode(dense([1, 2], float32(0.5, 0.5)), [0], 2).probabilities.tolist() == [[0.5, 0.5]]
    assert_refused(message, [0], 2, field)


@pytest.mark.parametrize("message", [None, encode_one_hot(), dense([1, 2], float32(0.5, 0.5)), sparse([2], *VALID)])
@pytest.mark.parametrize("token", [-1, 5, 2**32 - 1, 2**70])
def test_tokens_outside_the_vocabulary_are_refused(message, token):
    assert_refused(message, [token], 5, "proposal.token_ids")


def test_the_padding_of_a_short_row_gives_token_0_no_probability():
    message = sparse([2, 1], uint32(0, 2, 1), uint32(3, 1, 4))
    assert decode(message, [0, 1], 5).token_ids.tolist() == [[0, 2], [1, 0]]
    assert_refused(message, [0, 0], 5, "proposal.distributions")


def test_a_token_beyond_the_drafts_vocabulary_has_no_probability():
    assert_refused(dense([1, 2], float32(0.5, 0.5)), [2], 5, "proposal.distributions")


def test_rows_for_no_tokens():
    assert decode(sparse([], b"", b""), [], 5).token_ids.shape == (0, 1)
    assert decode(dense([0, 5], b""), [], 5).token_ids.shape == (0, 5)
    assert_refused(sparse([2], *VALID), [], 5, f"{SPARSE}.support_sizes")


def accepted_is_sound(message: Distributions | None, tokens: list[int], vocab_size: int) -> None:
    """Whatever `decode` lets through is a distribution that can have given the tokens; all else is refused as such."""
    try:
        rows = decode(message, tokens, vocab_size)
    except InvalidDistributionError:
        return
    assert rows.token_ids.shape == rows.probabilities.shape and len(rows.token_ids) == len(tokens)
    for token, ids, row, drawn in zip(tokens, *rows.padded, strict=True):
        support = ids[row > 0]
        assert row[(ids == token) & (row > 0)].tolist() == [drawn]
        assert token in support and len(set(support)) == len(support)
        assert ((ids >= 0) & (ids < vocab_size)).all()
        assert (row >= 0).all() and np.isclose(row.sum(), 1.0, rtol=0, atol=1e-12)


small = st.integers(0, 9)
numbers = st.one_of(small, st.sampled_from([2**31 - 1, 2**31, 2**32 - 1]))
any_tokens = st.lists(st.integers(0, 5), max_size=3)


@settings(max_examples=300)
@given(
    st.lists(numbers, max_size=3),
    st.one_of(st.binary(max_size=20), st.lists(numbers, max_size=5).map(lambda n: uint32(*n))),
    st.one_of(st.binary(max_size=20), st.lists(numbers, max_size=5).map(lambda n: uint32(*n))),
    st.one_of(st.integers(0, 4), numbers),
    any_tokens,
    st.integers(1, 6),
)
def test_no_sparse_message_does_harm(sizes, ids, counts, total_log2, tokens, vocab_size):
    accepted_is_sound(sparse(sizes, ids, counts, total_log2), tokens, vocab_size)


floats = st.one_of(st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, 1e-45]), st.floats(width=32))


@settings(max_examples=300)
@given(
    st.lists(numbers, max_size=3),
    st.one_of(st.binary(max_size=20), st.lists(floats, max_size=5).map(lambda n: float32(*n))),
    st.sampled_from([0, 1, 1, 1, 7]),
    any_tokens,
    st.integers(1, 6),
)
def test_no_dense_message_does_harm(shape, data, kind, tokens, vocab_size):
    accepted_is_sound(dense(shape, data, kind), tokens, vocab_size)


@settings(max_examples=150)
@given(st.data(), st.integers(0, 2**31), st.booleans(), st.integers(0, 3))
def test_no_flipped_byte_does_harm(data, seed, sparsely, count):
    rows = random_rows(seed, count, 5)
    encoded = bytearray((encode_counts(sparsify(rows)) if sparsely else encode_dense(rows)).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        assume(encoded)
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = Distributions.FromString(bytes(encoded))
    except DecodeError:
        reject()  # gRPC refuses what is no message before it comes here
    accepted_is_sound(message, data.draw(any_tokens), 5)
