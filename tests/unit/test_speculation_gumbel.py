import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, gumbel_r, kstest

from specpair.speculation.gumbel import choose, noise


def test_noise_is_gumbel() -> None:
    sample = noise(range(300), [5] * 300, 200).flatten().numpy()
    assert kstest(sample, gumbel_r.cdf).pvalue > 1e-3


def test_the_largest_of_a_group_is_gumbel_too_and_falls_anywhere() -> None:
    group = noise(range(4000), [9] * 4000, 64)
    assert kstest(group.amax(-1).numpy() - np.log(64), gumbel_r.cdf).pvalue > 1e-3
    assert chisquare(np.bincount(group.argmax(-1).numpy(), minlength=64)).pvalue > 1e-3


def test_noise_of_neighbours_is_independent() -> None:
    """Tokens of one group, positions, seeds: no correlation beyond chance."""
    by_position = noise([7] * 3000, range(3000), 70)
    by_seed = noise(range(3000), [7] * 3000, 70)
    for sample in (by_position, by_seed):
        correlation = np.corrcoef(sample.T.numpy()) - np.eye(70)
        assert np.abs(correlation).max() < 5.5 / np.sqrt(3000)
    shifted = np.corrcoef(by_position[:-1, 0].numpy(), by_position[1:, 0].numpy())[0, 1]
    assert abs(shifted) < 4 / np.sqrt(3000)


@given(st.integers(1, 300), st.integers(0, 2**31 - 1), st.floats(0.0, 8.0), st.integers(1, 4))
@settings(deadline=None, max_examples=150)
def test_the_choice_is_the_argmax_over_the_whole_vocabulary(width: int, seed: int, spread: float, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = (torch.randn(count, width, generator=generator) * spread).softmax(-1)
    rows[torch.rand(rows.shape, generator=generator) < 0.3] = 0.0
    rows[:, seed % width] += 0.01
    seeds, positions = [seed * 2**32 + i for i in range(count)], [i * 1000 for i in range(count)]
    expected = (rows.double().log() + noise(seeds, positions, width)).argmax(-1)
    assert torch.equal(choose(rows, seeds, positions), expected)


def test_a_flat_row_wants_more_than_the_first_group() -> None:
    rows = torch.full((64, 1000), 1e-3)
    seeds, positions = list(range(64)), [3] * 64
    expected = (rows.double().log() + noise(seeds, positions, 1000)).argmax(-1)
    assert torch.equal(choose(rows, seeds, positions), expected)


def test_choices_are_distributed_as_the_row() -> None:
    row = torch.tensor([0.5, 0.25, 0.0, 0.125, 0.1, 0.025])
    chosen = choose(row.expand(20000, -1), range(20000), [0] * 20000)
    counts = np.bincount(chosen.numpy(), minlength=6)
    assert counts[2] == 0
    kept = [0, 1, 3, 4, 5]
    assert chisquare(counts[kept], row.numpy()[kept].astype(float) * 20000 / row.sum().item()).pvalue > 1e-3


def test_distributions_that_are_alike_choose_alike() -> None:
    """At least (1 - TV) / (1 + TV) of the time."""
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(2, 50, generator=generator) * 1.5).softmax(-1)
    second = 0.7 * first + 0.3 * second
    distance = float((first - second).abs().sum() / 2)
    seeds, positions = range(8000), [2] * 8000
    same = choose(first.expand(8000, -1), seeds, positions) == choose(second.expand(8000, -1), seeds, positions)
    assert same.double().mean() > (1 - distance) / (1 + distance) - 0.02


def test_a_wider_vocabulary_has_the_same_noise() -> None:
    assert torch.equal(noise([3], [4], 300)[:, :70], noise([3], [4], 70))
