import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from specpair.speculation.draft_rows import DraftRows, draw, stack_blocks
from specpair.speculation.randomness import BITS, Domain, random_words, uniforms

pytestmark = pytest.mark.usefixtures("arithmetic")


def random_rows(seed: int, count: int, width: int, spread: float, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(count, width, generator=generator, dtype=dtype) * spread).softmax(-1)


def draw_both(weights: Tensor, uniforms: Tensor) -> Tensor:
    """In numpy and as tensors, which must agree."""
    drawn = draw(weights, uniforms)
    assert draw(weights.numpy(), uniforms.numpy()).tolist() == drawn.tolist()
    return drawn


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any), st.floats(1e-6, 1e6))
def test_draw_gives_each_token_its_share_of_an_even_grid(shares, scale):
    """With weights of n / total, the middles of `total` equal intervals fall to each token exactly n times."""
    total = sum(shares)
    weights = torch.tensor([shares], dtype=torch.float64).expand(total, -1) * scale
    drawn = draw_both(weights, (torch.arange(total, dtype=torch.float64) + 0.5) / total)
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
    drawn = draw_both(weights, ends)
    assert (weights.gather(-1, drawn[:, None]) > 0).all()


def test_draw_follows_the_weights_with_real_noise():
    count = 40_000
    weights = torch.tensor([[0.1, 0.0, 3.0, 0.5, 1.4]], dtype=torch.float64)
    noise = torch.from_numpy(uniforms(random_words(1, Domain.DRAFT, 1, 0, count)))
    drawn = draw_both(weights.expand(count, -1), noise)
    observed = np.bincount(drawn.numpy(), minlength=5)
    assert observed[1] == 0
    assert stats.chisquare(observed[[0, 2, 3, 4]], count * np.array([0.1, 3.0, 0.5, 1.4]) / 5).pvalue > 1e-4


@pytest.mark.parametrize("row", [[0.0, 0.0], [torch.nan, 1.0], [torch.inf, 1.0]])
def test_draw_from_a_hopeless_row_gives_some_id_and_spares_the_others(row):
    weights = torch.tensor([row, [0.0, 2.0]], dtype=torch.float64)
    drawn = draw_both(weights, torch.tensor([0.999, 0.999], dtype=torch.float64))
    assert 0 <= drawn[0] < 2 and drawn[1] == 1


def test_stacked_blocks_are_padded_with_probability_zero():
    first = DraftRows(np.array([[1, 2], [3, 4]]), np.full((2, 2), 0.5), np.full(2, 0.5))
    second = DraftRows(np.array([[5]]), np.ones((1, 1)), np.ones(1))
    empty = DraftRows(np.zeros((0, 1), dtype=np.int64), np.ones((0, 1)), np.ones(0))
    stacked = stack_blocks([first, second, empty])
    assert stacked.token_ids.tolist() == [[[1, 2], [3, 4]], [[5, 0], [0, 0]], [[0, 0], [0, 0]]]
    assert stacked.probabilities.sum(-1).tolist() == [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    assert stacked.drawn.tolist() == [[0.5, 0.5], [1.0, np.inf], [np.inf, np.inf]]
    (alone,) = stack_blocks([first]).token_ids
    assert alone.tolist() == first.token_ids.tolist()


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_the_probability_of_the_drawn_token_is_looked_up(convert):
    rows = DraftRows.of(
        convert(np.array([[4, 0], [7, 0], [1, 2]])),
        convert(np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])),
        convert(np.array([0, 0, 3])),
    )
    assert rows.drawn.tolist() == [0.75, np.inf, np.inf]
