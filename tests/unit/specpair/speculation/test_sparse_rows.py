import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from specpair.speculation.count_row import TOTAL_LOG2, CountRow, draw_token
from specpair.speculation.randomness import BITS, Domain, draw_bits
from specpair.speculation.sparse_rows import draw_counts, sparsify

pytestmark = pytest.mark.usefixtures("arithmetic")

TOTAL = 1 << TOTAL_LOG2


def random_rows(seed: int, count: int, width: int, spread: float, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, width, generator=generator, dtype=dtype) * spread).softmax(-1)


def plain_row(row: Tensor, mass_cut: float, max_support: int) -> dict[int, int]:
    """Counts by token, by sorting the whole row."""
    values, order = row.sort(descending=True, stable=True)
    sums = values.double().cumsum(-1)
    size = min(int((sums < 1.0 - mass_cut).sum()) + 1, max_support, int((values > 0).sum()))
    counts = (values[:size].double() * (TOTAL / sums[size - 1])).long()
    counts[0] += TOTAL - counts.sum()
    return {token: count for token, count in zip(order.tolist(), counts.tolist(), strict=False) if count}


def arrays(row: CountRow) -> tuple[np.ndarray, np.ndarray]:
    """Ids and counts."""
    assert isinstance(row.token_ids, np.ndarray) and isinstance(row.counts, np.ndarray)
    return row.token_ids, row.counts


def by_token(row: CountRow) -> dict[int, int]:
    ids, counts = arrays(row)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


shapes = {
    "width": st.sampled_from([1, 2, 37, 300, 1500, 5000]),
    "spread": st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 8.0, 40.0]),
    "levels": st.sampled_from([3, 40, None]),
}


@given(seed=st.integers(0, 2**31), mass_cut=st.sampled_from([0.0, 2.0**-8, 0.1, 0.9]), **shapes)
@settings(deadline=None, max_examples=200)
def test_rows_are_those_of_a_whole_sort(seed: int, width: int, spread: float, levels: int | None, mass_cut: float):
    """Few levels mean many equal probabilities: of those the first tokens are kept."""
    logits = torch.randn(2, width, generator=torch.Generator().manual_seed(seed)) * spread
    rows = (logits if levels is None else (logits * levels / 8).round() * 8 / levels).softmax(-1)
    for max_support in (1024, 30):
        for row, got in zip(rows, sparsify(rows, mass_cut=mass_cut, max_support=max_support), strict=True):
            assert by_token(got) == pytest.approx(plain_row(row, mass_cut, max_support), abs=1)
            ids, counts = arrays(got)
            assert counts.sum() == TOTAL and ids.tolist() == sorted(ids)
            assert ids.dtype == counts.dtype == np.uint32


def test_a_row_that_is_not_finite_has_no_tokens_and_spares_the_others() -> None:
    rows = random_rows(4, 3, 50, 1.0)
    expected = sparsify(rows)
    rows[1] = torch.nan
    spoilt = sparsify(rows)
    assert [by_token(row) for row in spoilt] == [by_token(expected[0]), {}, by_token(expected[2])]


@given(
    st.integers(0, 2**31),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.1, 1.0, 5.0, 40.0]),
    st.sampled_from([2.0**-10, 0.1, 0.9]),
    st.integers(1, 300),
)
def test_counts_sum_to_the_total_and_follow_the_probabilities(seed, width, spread, mass_cut, max_support):
    rows = random_rows(seed, 3, width, spread)
    for row, sparse in zip(rows.double(), sparsify(rows, mass_cut=mass_cut, max_support=max_support), strict=True):
        ids, counts = arrays(sparse)
        assert counts.sum() == TOTAL and counts.all()
        kept = torch.from_numpy(ids.astype(np.int64))
        assert len(set(kept.tolist())) == len(kept) <= max_support
        expected = row[kept] / row[kept].sum()
        off = (torch.from_numpy(counts / TOTAL) - expected).abs()
        assert off.max() <= (width + 1) / TOTAL


@pytest.mark.parametrize("width", [1, 5, 4096, 20000])
def test_a_one_hot_row_is_one_token_with_the_full_count(width):
    rows = torch.zeros(1, width)
    rows[0, width // 2] = 1.0
    assert [by_token(row) for row in sparsify(rows)] == [{width // 2: TOTAL}]


def test_tokens_too_unlikely_for_a_count_fall_out():
    row = torch.tensor([[1.0 - 2.0**-20 - 2.0**-30, 2.0**-20, 2.0**-30]], dtype=torch.float64)
    assert [by_token(row) for row in sparsify(row, mass_cut=0.0)] == [{0: TOTAL - 16, 1: 16}]


@given(st.integers(0, 2**31), st.integers(1, 40), st.sampled_from([0.1, 1.0, 6.0]))
def test_draw_counts_gives_each_token_exactly_its_counts(seed, width, spread):
    """The 24 bits that choose walk through the tokens in order, so the ends of each token's range decide it all."""
    (sparse,) = sparsify(random_rows(seed, 1, width, spread))
    ids, counts = arrays(sparse)
    plain = CountRow(ids.tolist(), counts.tolist())
    low = seed % 2 ** (BITS - TOTAL_LOG2)
    ends = counts.cumsum(dtype=np.int64)
    for first, end, token in zip(ends - counts, ends, ids.tolist(), strict=True):
        for chosen in (int(first), int(end) - 1):
            bits = (chosen << (BITS - TOTAL_LOG2)) + low
            assert draw_counts(sparse, bits) == draw_token(plain, bits) == token


def test_draw_counts_follows_the_counts_with_real_noise():
    count = 40_000
    (sparse,) = sparsify(random_rows(5, 1, 8, 1.0))
    drawn = [draw_counts(sparse, draw_bits(seed, Domain.DRAFT, 1, 0)) for seed in range(count)]
    ids, counts = arrays(sparse)
    observed = np.bincount(drawn, minlength=8)[ids]
    assert stats.chisquare(observed, counts / TOTAL * count).pvalue > 1e-4
