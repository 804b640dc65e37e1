import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, gumbel_r, kstest

from specpair.speculation import gumbel, sparse_gumbel
from specpair.speculation.gumbel import choose, choose_and_look, noise
from specpair.speculation.sparse_gumbel import choose_among

pytestmark = pytest.mark.usefixtures("arithmetic")


def test_noise_is_gumbel() -> None:
    sample = noise(range(300), [5] * 300, 200).flatten().numpy()
    assert kstest(sample, gumbel_r.cdf).pvalue > 1e-3


def test_noise_of_neighbours_is_independent() -> None:
    """Tokens of one word and the next, positions, seeds: no correlation beyond chance."""
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


@pytest.mark.parametrize("scale", [1e-9, 0.1, 50.0])
def test_rows_that_are_not_normalised_race_longer_or_shorter(scale: float) -> None:
    """Whose winner comes after the first time at which anybody looks, or about then, or before most."""
    rows = torch.rand(300, 100, generator=torch.Generator().manual_seed(1)) / 50 * scale
    seeds, positions = list(range(300)), [3] * 300
    expected = (rows.double().log() + noise(seeds, positions, 100)).argmax(-1)
    assert torch.equal(choose(rows, seeds, positions), expected)
    alone = [choose(rows[i : i + 1], [seeds[i]], [3]).item() for i in range(300)]
    assert alone == expected.tolist()


def test_the_only_candidate_may_come_after_others() -> None:
    """It is likely to come in time, so nobody else is looked at; but it comes late, and then others are first."""
    row = torch.tensor([[0.3] + [0.001] * 100])
    for position in range(1500):
        expected = (row.double().log() + noise([1], [position], 101)).argmax(-1)
        assert torch.equal(choose(row, [1], [position]), expected)


@pytest.mark.usefixtures("by_numpy")
def test_where_the_upper_bits_leave_two_the_lower_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do once in some thousand rows: here the lanes are alike throughout. Compiled: test_native_racing.py."""
    lanes = np.full((1, 8), 7, dtype="<u2")
    monkeypatch.setattr(gumbel, "_lanes", lambda keys, width: lanes.repeat(len(keys), 0)[:, :width])
    rows = (0.125 + 1e-6 * torch.arange(8.0)).expand(300, -1).contiguous()
    seeds, positions = [5] * 300, list(range(300))
    expected = (rows.double().log() + noise(seeds, positions, 8)).argmax(-1)
    assert torch.equal(choose(rows, seeds, positions), expected)
    assert len(set(expected.tolist())) == 8
    monkeypatch.setattr(sparse_gumbel, "_lane", lambda *key: 7)
    few = [choose_among(range(8), rows[0].tolist(), 5, position) for position in positions]
    assert few == expected.tolist()


@given(st.integers(1, 300), st.integers(0, 2**31 - 1), st.floats(0.0, 8.0), st.sampled_from([4.0, 512.0, np.inf]))
@settings(deadline=None, max_examples=60)
def test_a_device_finds_the_same_candidates(width: int, seed: int, spread: float, limit: float) -> None:
    rows = (torch.randn(3, width, generator=torch.Generator().manual_seed(seed)) * spread).softmax(-1)
    keys = [(seed + row, 2**40 + row) for row in range(3)]
    for found, expected in zip(gumbel._find_on_device(rows, keys, limit), gumbel._find(rows, keys, limit), strict=True):
        assert found.tolist() == expected.tolist()


def test_a_row_without_a_choice_gives_a_token_and_spares_the_others() -> None:
    rows = torch.rand(4, 100, generator=torch.Generator().manual_seed(2)).softmax(-1)
    seeds, positions = [1] * 4, list(range(4))
    expected = choose(rows, seeds, positions)
    for bad in (0.0, torch.nan):
        spoilt = rows.clone()
        spoilt[2] = bad
        chosen = choose(spoilt, seeds, positions)
        assert chosen[2] == 0 and torch.equal(chosen[[0, 1, 3]], expected[[0, 1, 3]])


@given(st.integers(1, 300), st.integers(0, 2**31 - 1), st.floats(0.0, 8.0), st.integers(0, 2**40))
@settings(deadline=None, max_examples=150)
def test_few_tokens_choose_as_their_row_does(width: int, seed: int, spread: float, position: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randperm(width, generator=generator)[: 1 + seed % 9]
    weights = (torch.randn(len(tokens), generator=generator) * spread).exp().double()
    weights[1:][torch.rand(len(tokens) - 1, generator=generator) < 0.2] = 0.0
    row = torch.zeros(1, width, dtype=torch.float64)
    row[0, tokens] = weights
    expected = choose(row, [seed], [position]).item()
    assert choose_among(tokens.tolist(), weights.tolist(), seed, position) == expected


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


@pytest.mark.parametrize("same_positions", [True, False])
def test_an_outlook_names_the_first_to_arrive_and_changes_no_choice(same_positions: bool) -> None:
    """Guesses are the top of log p + g, as far as they come in time and the upper bits tell them apart. Rows of one
    sequence at one position share the noise."""
    generator = torch.Generator().manual_seed(2)
    rows = (torch.randn(40, 300, generator=generator) * 2).softmax(-1)
    seeds, positions = [7] * 40, [i // 10 if same_positions else i for i in range(40)]
    chosen, outlooks = choose_and_look(rows, seeds, positions, 4)
    assert torch.equal(chosen, choose(rows, seeds, positions))
    best = (rows.double().log() + noise(seeds, positions, 300)).topk(4)
    counts = ((-best.values).exp() < gumbel._LIMITS[0]).sum(-1).tolist()
    assert np.mean(counts) > 3
    rows_and_outlooks = zip(best.indices.tolist(), counts, outlooks, strict=True)
    assert np.mean([list(outlook.token_ids[:count]) == row[:count] for row, count, outlook in rows_and_outlooks]) > 0.9
    assert all(sum(outlook.shares) == pytest.approx(1.0) for outlook in outlooks)
