"""The target's own token: drawn as its weights say, the same in any company, and foreseen by a draft like it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.gumbel import choose_and_look
from specpair.speculation.outlook import WIDTH
from specpair.speculation.own_token import OWN, draw_own, foresee, foresee_dense
from specpair.speculation.sparse_rows import sparsify

pytestmark = pytest.mark.usefixtures("arithmetic")

WEIGHTS = np.array([0.1, 0.0, 3.0, 0.5, 1.4])


def keys(count: int, *, varied: str) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(count)
    return (numbers, np.full(count, 7)) if varied == "seed" else (np.full(count, 7), numbers)


@pytest.mark.slow
@pytest.mark.parametrize("varied", ["seed", "step"])
@pytest.mark.parametrize("kind", ["numpy", "tensor", "float32"])
def test_it_follows_the_weights(kind: str, varied: str) -> None:
    """Weights that are not normalised, of all kinds that the rules have."""
    count = 4_000 if kind == "tensor" else 20_000
    rows = np.tile(WEIGHTS, (count, 1))
    own = keys(count, varied=varied)
    if kind == "tensor":
        drawn = draw_own(torch.from_numpy(rows), *map(torch.from_numpy, own)).numpy()
    else:
        drawn = draw_own(rows.astype(np.float32) if kind == "float32" else rows, *own)
    observed = np.bincount(drawn, minlength=5)
    assert observed[1] == 0
    held = WEIGHTS > 0
    assert chisquare(observed[held], count * WEIGHTS[held] / WEIGHTS.sum()).pvalue > 1e-4


rows_and_keys = given(
    width=st.sampled_from([1, 5, 70, 3000]),
    count=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    spread=st.floats(0, 6),
)


def random_weights(width: int, count: int, seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Residuals [N, V] with sums from nearly 0 to 1, and keys [N]."""
    generator = np.random.default_rng(seed)
    weights = np.exp(spread * generator.standard_normal((count, width)))
    weights *= generator.random((count, 1)) ** 8 / weights.sum(-1, keepdims=True)
    weights[:, 1:] *= generator.random((count, width - 1)) < 0.7
    return weights, generator.integers(-(2**63), 2**63, count)


@rows_and_keys
@settings(deadline=None, max_examples=40)
def test_it_is_the_same_alone_and_by_any_scale(width: int, count: int, seed: int, spread: float) -> None:
    weights, own = random_weights(width, count, seed, spread)
    together = draw_own(weights, own, own).tolist()
    assert [draw_own(weights[i : i + 1], own[i : i + 1], own[i : i + 1])[0] for i in range(count)] == together
    assert draw_own(weights * 2.0**-90, own, own).tolist() == together
    assert all(row[token] > 0 for row, token in zip(weights, together, strict=True))


@rows_and_keys
@settings(deadline=None, max_examples=20)
def test_a_device_draws_the_same(width: int, count: int, seed: int, spread: float) -> None:
    """But for the rounding of weights to float32, of which nothing is seen here."""
    weights, own = random_weights(width, count, seed, spread)
    rounded = weights.astype(np.float32).astype(np.float64)
    by_tensors = draw_own(torch.from_numpy(rounded), *[torch.from_numpy(own)] * 2)
    assert by_tensors.tolist() == draw_own(rounded, own, own).tolist()


def some_rows(count: int, width: int, seed: int = 3) -> torch.Tensor:
    return (2.5 * torch.randn(count, width, generator=torch.Generator().manual_seed(seed))).softmax(-1)


def test_a_draft_foresees_the_race_of_its_row() -> None:
    """Of counts as of the whole row: the same tokens first, in the same order."""
    rows = sparsify(some_rows(12, 900))
    dense = torch.zeros(12, 900)
    for row, own in zip(dense, rows, strict=True):
        row[np.asarray(own.token_ids, dtype=np.int64)] = torch.from_numpy(np.asarray(own.counts) / TOTAL).float()
    expected = choose_and_look(dense, [5] * 12, [9 ^ OWN] * 12, WIDTH)[1]
    for found in (foresee(rows, 5, 9), foresee_dense(list(dense), 5, 9)):
        for outlook, right in zip(found, expected, strict=True):
            assert list(outlook.token_ids[:3]) == list(right.token_ids[:3])  # of late ones it leaves out some
    assert sum(foresee(rows, 5, 9)[0].shares) == pytest.approx(1.0)
    assert foresee([], 5, 9) == foresee_dense([], 5, 9) == []


def test_a_row_of_few_tokens_has_a_short_outlook() -> None:
    (outlook,) = foresee([CountRow([2, 5, 9], [TOTAL // 4, TOTAL // 2, TOTAL // 4])], 1, 2)
    assert sorted(outlook.token_ids) == [2, 5, 9]


def test_what_is_foreseen_comes() -> None:
    """With the target's own row it comes for certain, but for ties of upper bits; with one that is like it more often
    than what the row alone says."""
    count, width = 400, 500
    target = some_rows(count, width)
    draft = (target.log() + 0.4 * some_rows(count, width, 8).log()).softmax(-1)
    steps = np.arange(count)
    drawn = draw_own(target.numpy(), np.full(count, 5), steps).tolist()

    def hits(rows: torch.Tensor) -> float:
        looks = [foresee_dense([row], 5, step)[0] for step, row in enumerate(rows)]
        return sum(look.token_ids[0] == token for look, token in zip(looks, drawn, strict=True)) / count

    by_the_row = (draft.argmax(-1).numpy() == drawn).mean()
    assert hits(target) > 0.99
    assert hits(draft) > by_the_row + 0.1


def test_the_order_of_a_rows_tokens_says_nothing() -> None:
    (row,) = sparsify(some_rows(1, 900))
    shuffled = np.random.default_rng(1).permutation(len(row.token_ids))
    other = CountRow(np.asarray(row.token_ids)[shuffled], np.asarray(row.counts)[shuffled])
    (first,), (second,) = foresee([row], 5, 9), foresee([other], 5, 9)
    assert list(first.token_ids) == list(second.token_ids) and first.shares == pytest.approx(second.shares)
