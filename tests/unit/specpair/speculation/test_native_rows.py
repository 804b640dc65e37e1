"""Rows of counts from the compiled library: those of numpy, to the last count."""

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.native.library import native_library
from specpair.speculation import draft_rows, sparse_rows
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.draft_rows import draw
from specpair.speculation.randomness import BITS
from specpair.speculation.sparse_rows import MASS_CUT, MAX_SUPPORT, draw_counts, draw_rows, sparsify

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
widths = st.one_of(st.integers(1, 70), st.sampled_from([300, 1023, 1024, 1025, 1500, 5000]))
ENDS = (0, 2**BITS - 1)


@pytest.fixture(autouse=True, scope="module")
def loaded() -> Iterator[None]:
    native_library()
    yield


def random_rows(seed: int, width: int, spread: float, levels: int | None, kept: float) -> Tensor:
    """Three rows. Few levels mean many equal probabilities; only a share `kept` of the tokens can come."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, width, generator=generator) * spread
    logits = logits if levels is None else (logits * levels / 8).round() * 8 / levels
    masked = torch.rand(logits.shape, generator=generator) >= kept
    masked[:, seed % width] = False
    return logits.masked_fill(masked, -torch.inf).softmax(-1)


some_rows = st.builds(
    random_rows,
    seed=st.integers(0, 2**31),
    width=widths,
    spread=st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 8.0, 40.0]),
    levels=st.sampled_from([3, 40, None]),
    kept=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)


def in_numpy(rows: Tensor, mass_cut: float = MASS_CUT, max_support: int = MAX_SUPPORT) -> list[CountRow]:
    with mock.patch.object(sparse_rows, "quick_functions", lambda count: None):
        return sparsify(rows, mass_cut=mass_cut, max_support=max_support)


def listed(row: CountRow) -> list[list[int]]:
    return [np.asarray(part).tolist() for part in row]


@given(some_rows, st.sampled_from([2.0**-8, 0.02, 0.3, 0.9]), st.sampled_from([1, 2, 30, 1024]))
@settings(max_examples=300)
def test_rows_are_those_of_numpy(rows: Tensor, mass_cut: float, max_support: int) -> None:
    """Above 2^-29 all sums are exact, so their order cannot show."""
    compiled = sparsify(rows, mass_cut=mass_cut, max_support=max_support)
    for row, expected in zip(compiled, in_numpy(rows, mass_cut, max_support), strict=True):
        assert listed(row) == listed(expected)
        assert isinstance(row.counts, np.ndarray) and row.counts.dtype == row.token_ids.dtype == np.uint32  # type: ignore[union-attr]


@given(some_rows)
def test_rows_that_keep_every_token_differ_by_rounding_alone(rows: Tensor) -> None:
    for row, expected in zip(sparsify(rows, mass_cut=0.0), in_numpy(rows, 0.0), strict=True):
        ours, theirs = ({t: c for t, c in zip(*listed(one), strict=True)} for one in (row, expected))
        assert sum(ours.values()) == TOTAL and min(ours.values()) > 0
        assert all(abs(ours.get(token, 0) - theirs.get(token, 0)) <= 1 for token in {*ours, *theirs})


@given(some_rows, st.lists(st.one_of(st.integers(0, 2**BITS - 1), st.sampled_from(ENDS)), min_size=3, max_size=3))
def test_a_token_is_drawn_from_the_counts_that_are_sent(rows: Tensor, bits: list[int]) -> None:
    for (row, token), own in zip(draw_rows(rows, bits), bits, strict=True):
        assert token == draw_counts(row, own)


@pytest.mark.parametrize("width", [1, 2, 17, 40, 4096])
def test_rows_without_tokens_spare_the_others(width: int) -> None:
    rows = random_rows(width, width, 2.0, None, 1.0)
    expected = listed(in_numpy(rows[1:2])[0])
    rows[0], rows[2] = torch.nan, 0.0
    drawn = draw_rows(rows, [0, 0, 0])
    assert [listed(row) for row, _ in drawn] == [[[], []], expected, [[], []]]
    assert [token for _, token in drawn[::2]] == [0, 0]


@given(some_rows, st.sampled_from([1.0, 1e-240, 1e200]), st.sampled_from([0.0, 2.0**-53, 0.5, 0.77, 1 - 2.0**-53]))
def test_draws_have_the_bits_of_numpy(rows: Tensor, scale: float, uniform: float) -> None:
    weights, uniforms = rows.double().numpy() * scale, np.full(3, uniform)
    compiled = draw(weights, uniforms)
    with mock.patch.object(draft_rows, "quick_functions", lambda: None):
        assert draw(weights, uniforms).tolist() == compiled.tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize("width", [1, 3, 64, 65, 1000])
def test_a_draw_from_a_hopeless_row_gives_some_id(value: float, width: int) -> None:
    for uniform in (0.0, 0.5, 1 - 2.0**-53):
        assert 0 <= draw(np.full((1, width), value), np.array([uniform]))[0] < width
