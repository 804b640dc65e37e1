import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from specpair.speculation.drafting import (
    TOTAL_LOG2,
    DraftRows,
    SparseRows,
    concatenate,
    draw,
    draw_counts,
    sparsify,
    stack_blocks,
)
from specpair.speculation.randomness import BITS, Domain, random_bits, uniforms

TOTAL = 1 << TOTAL_LOG2


def random_rows(seed: int, count: int, width: int, spread: float, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, width, generator=generator, dtype=dtype) * spread).softmax(-1)


@given(
    st.integers(0, 2**31),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.1, 1.0, 5.0, 40.0]),
    st.sampled_from([2.0**-10, 0.1, 0.9]),
    st.integers(1, 300),
)
def test_counts_sum_to_the_total_and_follow_the_probabilities(seed, width, spread, mass_cut, max_support):
    rows = random_rows(seed, 3, width, spread)
    sparse = sparsify(rows, mass_cut=mass_cut, max_support=max_support)
    assert sparse.counts.dtype == sparse.token_ids.dtype == torch.int64
    assert (sparse.counts.sum(-1) == TOTAL).all() and (sparse.counts >= 0).all()
    for row, ids, counts in zip(rows.double(), sparse.token_ids, sparse.counts, strict=True):
        kept = ids[counts > 0]
        assert len(set(kept.tolist())) == len(kept) <= max_support
        expected = row[kept] / row[kept].sum()
        off = (counts[counts > 0] / TOTAL - expected).abs()
        assert off.max() <= (width + 1) / TOTAL


@pytest.mark.parametrize(("width", "spread"), [(50, 1.0), (4096, 8.0), (8192, 4.0)])
def test_the_support_is_the_smallest_that_keeps_the_mass(width, spread):
    rows = random_rows(1, 4, width, spread, torch.float64)
    sparse = sparsify(rows, mass_cut=0.05, max_support=width)
    for row, ids, counts in zip(rows, sparse.token_ids, sparse.counts, strict=True):
        kept = row[ids[counts > 0]]
        assert kept.sum() >= 0.95 > kept.sum() - kept.min()
        assert (row >= kept.min()).sum() == len(kept)


def test_the_support_is_capped_at_the_most_likely():
    rows = random_rows(2, 3, 3000, 0.5)
    sparse = sparsify(rows, max_support=200)
    assert sparse.counts.shape == (3, 200) and (sparse.counts > 0).all()
    for row, ids in zip(rows, sparse.token_ids, strict=True):
        assert set(ids.tolist()) == set(row.topk(200).indices.tolist())


@pytest.mark.parametrize("width", [1, 5, 4096, 20000])
def test_a_one_hot_row_is_one_token_with_the_full_count(width):
    rows = torch.zeros(1, width)
    rows[0, width // 2] = 1.0
    sparse = sparsify(rows)
    assert sparse.counts.count_nonzero() == 1
    assert sparse.counts[0, 0] == TOTAL and sparse.token_ids[0, 0] == width // 2


def test_tokens_too_unlikely_for_a_count_fall_out():
    row = torch.tensor([[1.0 - 2.0**-20 - 2.0**-30, 2.0**-20, 2.0**-30]], dtype=torch.float64)
    assert sparsify(row, mass_cut=0.0).counts.tolist() == [[TOTAL - 16, 16, 0]]


def test_draw_rows_of_counts_are_the_counts_over_the_total():
    rows = SparseRows(torch.tensor([[4, 1, 0]]), torch.tensor([[3 * TOTAL // 4, TOTAL // 4, 0]]))
    assert rows.to_draft_rows().probabilities.tolist() == [[0.75, 0.25, 0.0]]


@given(st.integers(0, 2**31), st.integers(1, 40), st.sampled_from([0.1, 1.0, 6.0]))
def test_draw_counts_gives_each_token_exactly_its_counts(seed, width, spread):
    """The 24 bits that choose walk through the tokens in order, so the ends of each token's range decide it all."""
    sparse = sparsify(random_rows(seed, 1, width, spread))
    held = sparse.counts[0] > 0
    ids, ends = sparse.token_ids[0, held], sparse.counts[0, held].cumsum(-1)
    firsts, lasts = ends - sparse.counts[0, held], ends - 1
    low = torch.randint(2 ** (BITS - TOTAL_LOG2), ends.shape, generator=torch.Generator().manual_seed(seed))
    for chosen in (firsts, lasts):
        rows = SparseRows(sparse.token_ids.expand(len(ids), -1), sparse.counts.expand(len(ids), -1))
        assert torch.equal(draw_counts(rows, (chosen << (BITS - TOTAL_LOG2)) + low), ids)


def test_draw_counts_never_draws_what_has_no_count():
    rows = SparseRows(torch.tensor([[9, 8, 7, 6]]), torch.tensor([[0, TOTAL - 1, 0, 1]]))
    for bits, expected in ((0, 8), (2**BITS - 1, 6), ((TOTAL - 1) << (BITS - TOTAL_LOG2), 6)):
        assert draw_counts(rows, torch.tensor([bits])).tolist() == [expected]


def test_draw_counts_follows_the_counts_with_real_noise():
    count = 40_000
    sparse = sparsify(random_rows(5, 1, 8, 1.0))
    rows = SparseRows(sparse.token_ids.expand(count, -1), sparse.counts.expand(count, -1))
    drawn = draw_counts(rows, random_bits(range(count), Domain.DRAFT, [1] * count, [0] * count))
    observed = np.bincount(drawn.numpy(), minlength=8)[sparse.token_ids[0].numpy()]
    assert stats.chisquare(observed, sparse.counts[0].numpy() / TOTAL * count).pvalue > 1e-4


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any), st.floats(1e-6, 1e6))
def test_draw_gives_each_token_its_share_of_an_even_grid(shares, scale):
    """With weights of n / total, the middles of `total` equal intervals fall to each token exactly n times."""
    total = sum(shares)
    weights = torch.tensor([shares], dtype=torch.float64).expand(total, -1) * scale
    drawn = draw(weights, (torch.arange(total, dtype=torch.float64) + 0.5) / total)
    assert torch.bincount(drawn, minlength=len(shares)).tolist() == shares
    assert drawn.tolist() == sorted(drawn.tolist())


@pytest.mark.parametrize("width", [1, 2, 3, 100, 4096, 128_256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draw_never_gives_a_token_without_weight(width, dtype):
    """At both ends of the interval, where rounding would do it."""
    weights = random_rows(width, 6, width, 3.0).to(dtype)
    weights[:, 0] *= width == 1
    weights[:, -1] *= width < 3
    ends = torch.tensor([0.0, 2.0**-BITS, 0.5, 1 - 2.0**-30, 1 - 2.0**-52, 1 - 2.0**-53], dtype=torch.float64)
    drawn = draw(weights, ends)
    assert (weights.gather(-1, drawn[:, None]) > 0).all()


def test_draw_follows_the_weights_with_real_noise():
    count = 40_000
    weights = torch.tensor([[0.1, 0.0, 3.0, 0.5, 1.4]], dtype=torch.float64)
    drawn = draw(weights.expand(count, -1), uniforms(range(count), Domain.RESIDUAL, [1] * count, [0] * count))
    observed = np.bincount(drawn.numpy(), minlength=5)
    assert observed[1] == 0
    assert stats.chisquare(observed[[0, 2, 3, 4]], count * np.array([0.1, 3.0, 0.5, 1.4]) / 5).pvalue > 1e-4


@pytest.mark.parametrize("row", [[0.0, 0.0], [torch.nan, 1.0], [torch.inf, 1.0]])
def test_draw_from_a_hopeless_row_gives_some_id_and_spares_the_others(row):
    weights = torch.tensor([row, [0.0, 2.0]], dtype=torch.float64)
    drawn = draw(weights, torch.tensor([0.999, 0.999], dtype=torch.float64))
    assert 0 <= drawn[0] < 2 and drawn[1] == 1


def test_rows_of_different_widths_concatenate_and_come_apart_again():
    narrow, wide = sparsify(random_rows(1, 2, 3, 1.0)), sparsify(random_rows(2, 1, 7, 1.0))
    joined = concatenate([narrow, wide])
    assert joined.counts.shape == (3, 7) and (joined.counts.sum(-1) == TOTAL).all()
    assert torch.equal(joined.select(slice(0, 2)).counts[:, :3], narrow.counts)
    assert torch.equal(joined.select(torch.tensor([2])).token_ids, wide.token_ids)


def test_stacked_blocks_are_padded_with_probability_zero():
    first = DraftRows(torch.tensor([[1, 2], [3, 4]]), torch.full((2, 2), 0.5, dtype=torch.float64))
    second = DraftRows(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.float64))
    empty = DraftRows(torch.zeros(0, 1, dtype=torch.int64), torch.ones(0, 1, dtype=torch.float64))
    stacked = stack_blocks([first, second, empty])
    assert stacked.token_ids.tolist() == [[[1, 2], [3, 4]], [[5, 0], [0, 0]], [[0, 0], [0, 0]]]
    assert stacked.probabilities.sum(-1).tolist() == [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
