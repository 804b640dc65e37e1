"""What the compiled library lets pass is what numpy lets pass, and every mistake is told in the same words."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.errors import InvalidDistributionError
from specpair.native.library import native_library
from specpair.speculation.counted_rows import CountedRows
from specpair.speculation.sparse_rows import draw_counts, sparsify
from specpair.v1.proposal_pb2 import Distributions
from specpair.wire import distributions
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import decode
from tests.unit.specpair.wire.test_distributions import any_tokens, numbers, random_rows, sparse, uint32

VOCABULARY = 50


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    if native_library() is None:
        pytest.skip("needs a C compiler")


def seen(message: Distributions, tokens: list[int], vocab_size: int) -> object:
    """What comes of decoding."""
    try:
        rows = decode(message, tokens, vocab_size)
    except InvalidDistributionError as error:
        return str(error)
    assert isinstance(rows, CountedRows)
    return rows.table.tolist(), rows.id_bytes, rows.count_bytes, [part.tolist() for part in rows.padded]


def agreed(message: Distributions, tokens: list[int], vocab_size: int) -> object:
    """What comes of it in both ways, which must agree."""
    found = seen(message, tokens, vocab_size)
    with mock.patch.object(distributions, "quick_functions", lambda: None):
        assert seen(message, tokens, vocab_size) == found
    return found


def sound(seed: int, count: int) -> tuple[Distributions, list[int]]:
    rows, noise = sparsify(random_rows(seed, count, VOCABULARY)), np.random.default_rng(seed)
    return encode_counts(rows), [draw_counts(row, int(noise.integers(2**53))) for row in rows]


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_sound_rows_never_reach_numpy(seed: int, count: int) -> None:
    message, tokens = sound(seed, count)
    if message.HasField("sparse"):
        assert not isinstance(agreed(message, tokens, VOCABULARY), str)
        with mock.patch.object(distributions, "_checked", side_effect=AssertionError):
            decode(message, tokens, VOCABULARY)


@settings(max_examples=300)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 4), data=st.data())
def test_one_number_that_is_wrong(seed: int, count: int, data: st.DataObject) -> None:
    """Of a message that is right otherwise."""
    message, tokens = sound(seed, count)
    spoilt = message.sparse
    field = data.draw(st.sampled_from(["token_ids", "counts", "support_sizes", "total_log2", "tokens", "length"]))
    if field in ("token_ids", "counts"):
        own = np.frombuffer(getattr(spoilt, field), dtype="<u4").copy()
        if len(own):
            own[data.draw(st.integers(0, len(own) - 1))] = data.draw(
                st.one_of(numbers, st.integers(0, VOCABULARY), st.sampled_from(own.tolist()))
            )
        setattr(spoilt, field, own.tobytes())
    elif field == "support_sizes" and len(spoilt.support_sizes):
        spoilt.support_sizes[data.draw(st.integers(0, len(spoilt.support_sizes) - 1))] = data.draw(numbers)
    elif field == "total_log2":
        spoilt.total_log2 = data.draw(numbers)
    elif field == "length":
        spoilt.token_ids = spoilt.token_ids[: data.draw(st.integers(0, len(spoilt.token_ids)))]
    else:
        tokens[data.draw(st.integers(0, count - 1))] = data.draw(st.integers(0, VOCABULARY - 1))
    agreed(Distributions(sparse=spoilt), tokens, VOCABULARY)


@settings(max_examples=300)
@given(
    st.lists(numbers, max_size=3),
    st.one_of(st.binary(max_size=20), st.lists(numbers, max_size=5).map(lambda n: uint32(*n))),
    st.one_of(st.binary(max_size=20), st.lists(numbers, max_size=5).map(lambda n: uint32(*n))),
    st.one_of(st.integers(0, 4), numbers),
    any_tokens,
    st.integers(6, 8),
)
def test_any_numbers(
    sizes: list[int], ids: bytes, counts: bytes, total_log2: int, tokens: list[int], vocab_size: int
) -> None:
    agreed(sparse(sizes, ids, counts, total_log2), tokens, vocab_size)


@pytest.mark.parametrize(
    ("ids", "counts", "mistake"),
    [
        ((0, 3), (4, 0), "has a zero"),
        ((0, 4, 5), (2, 1, 1), "has an id that is not below 5"),
        ((0, 2**32 - 1), (2, 2), "has an id that is not below 5"),
        ((0, 0), (2, 2), "has a token twice"),
        ((0, 3), (2**32 - 1, 5), "does not sum"),
        ((0, 3), (3, 2), "does not sum"),
        ((1, 3), (3, 1), "no probability"),
    ],
)
def test_each_mistake_is_told(ids: tuple[int, ...], counts: tuple[int, ...], mistake: str) -> None:
    told = agreed(sparse([len(ids)], uint32(*ids), uint32(*counts)), [0], 5)
    assert isinstance(told, str) and mistake in told


def test_rows_in_another_order_pass_by_way_of_numpy() -> None:
    message = sparse([2, 2], uint32(4, 1, 1, 4), uint32(3, 1, 1, 3))
    assert agreed(message, [4, 1], 5) == agreed(message, [4, 1], 6)
    assert isinstance(agreed(message, [4, 2], 5), str)


def test_the_first_rows_are_rows() -> None:
    message, tokens = sound(3, 4)
    rows = decode(message, tokens, VOCABULARY)
    assert isinstance(rows, CountedRows)
    for count in range(5):
        some = rows.beginning(count)
        assert some.table.flags.c_contiguous and some.byte_count <= rows.byte_count
        for part, whole in zip(some.padded, rows.padded.beginning(count), strict=True):
            assert part.tolist() == (whole if part.ndim == 1 else whole[:, : part.shape[1]]).tolist()
