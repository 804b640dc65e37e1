"""What a device draws by itself is what the host draws from the same probabilities by the same bits, and nothing in it
waits for the device."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import SamplingOptions
from specpair.speculation import sparse_rows
from specpair.speculation.device_counts import count_row_of, device_counts, draw_counted
from specpair.speculation.device_race import race
from specpair.speculation.device_randomness import as_signed
from specpair.speculation.gumbel import choose
from specpair.speculation.randomness import Domain, random_bits
from specpair.speculation.sampling import SamplingRows, SamplingUse, probabilities
from specpair.speculation.sparse_rows import MASS_CUT, MAX_SUPPORT, draw_counts, sparsify
from tests.fixed_rows import FixedRows
from tests.option_strategies import sampling_options
from tests.silent_device import DEVICE, SilentDevice

SEEDS = [3, 2**64 - 1, 17, 99]
STEPS = [0, 5, 2**40, 7]


def rows_of(seed: int, width: int, spread: float, levels: int | None) -> Tensor:
    """Few levels mean many equal probabilities."""
    logits = torch.randn(4, width, generator=torch.Generator().manual_seed(seed)) * spread
    return (logits if levels is None else (logits * levels / 8).round() * 8 / levels).softmax(-1)


shapes = {
    "width": st.sampled_from([1, 2, 37, 300, 1500, 5000]),
    "spread": st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 8.0, 40.0]),
    "levels": st.sampled_from([3, 40, None]),
}


@given(seed=st.integers(0, 2**31), **shapes)
@settings(deadline=None, max_examples=150)
def test_counts_and_draws_are_those_of_the_host(seed: int, width: int, spread: float, levels: int | None) -> None:
    rows = rows_of(seed, width, spread, levels)
    token_ids, counts = device_counts(rows, MASS_CUT, MAX_SUPPORT)
    bits = np.array([random_bits(seed, Domain.DRAFT, step, 1)[0] for step in range(4)])
    tokens = draw_counted(token_ids, counts, torch.from_numpy(bits)).tolist()
    for row, expected in enumerate(sparsify(rows)):
        found = count_row_of(token_ids[row].numpy(), counts[row].numpy())
        assert np.array_equal(found.token_ids, expected.token_ids)
        assert np.abs(np.asarray(found.counts, dtype=np.int64) - np.asarray(expected.counts)).max() <= 1
        assert tokens[row] == draw_counts(found, int(bits[row])), "the token is drawn from what is sent"


def test_every_count_is_reached_and_none_is_drawn_twice() -> None:
    token_ids, counts = torch.tensor([[4, 7, 9]]), torch.tensor([[1, (1 << 24) - 3, 2]])
    for chosen, token in ((0, 4), (1, 7), ((1 << 24) - 3, 7), ((1 << 24) - 2, 9), ((1 << 24) - 1, 9)):
        assert draw_counted(token_ids, counts, torch.tensor([(chosen << 29) + 5])).tolist() == [token]


def test_a_row_of_nan_has_no_counts_and_harms_no_other() -> None:
    rows = rows_of(0, 50, 1.0, None)
    expected = sparsify(rows)[1]
    rows[0] = torch.nan
    token_ids, counts = device_counts(rows, MASS_CUT, MAX_SUPPORT)
    assert not counts[0].any()
    assert np.array_equal(count_row_of(token_ids[1].numpy(), counts[1].numpy()).counts, expected.counts)


def test_rows_that_are_fetched_from_a_device_are_those_of_the_host() -> None:
    rows = rows_of(1, 5000, 3.0, 40)
    for found, expected in zip(sparse_rows._fetched(rows, MASS_CUT, MAX_SUPPORT), sparsify(rows), strict=True):
        assert np.array_equal(found.token_ids, expected.token_ids) and np.array_equal(found.counts, expected.counts)


@given(seed=st.integers(0, 2**31), **shapes)
@settings(deadline=None, max_examples=150)
def test_a_race_is_won_as_on_the_host(seed: int, width: int, spread: float, levels: int | None) -> None:
    rows = rows_of(seed, width, spread, levels)
    rows = rows * (rows > rows.amax(-1, keepdim=True) * 1e-3)  # tokens that never arrive
    keys = torch.from_numpy(as_signed(SEEDS)), torch.from_numpy(as_signed(STEPS))
    assert torch.equal(race(rows, *keys), choose(rows, SEEDS, STEPS))


@given(options=st.lists(sampling_options(200), min_size=2, max_size=5), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_fixed_rows_have_the_distributions_of_others(options: list[SamplingOptions], seed: int) -> None:
    logits = 4 * torch.randn(len(options), 200, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(probabilities(logits, FixedRows.of(options)), probabilities(logits, SamplingRows.of(options)))


USE = SamplingUse(any_greedy=True, all_greedy=False, scales=True, largest_top_k=64, cuts_top_p=True, cuts_min_p=True)


def shaped() -> Tensor:
    numbers = torch.ones(2, device=DEVICE)
    return probabilities(torch.ones(2, 5000, device=DEVICE), FixedRows(USE, numbers, numbers.long(), numbers, numbers))


def counted() -> Tensor:
    rows = device_counts(torch.ones(2, 5000, device=DEVICE), MASS_CUT, MAX_SUPPORT)
    return draw_counted(*rows, torch.ones(2, dtype=torch.int64, device=DEVICE))


def raced() -> Tensor:
    keys = torch.ones(2, dtype=torch.int64, device=DEVICE)
    return race(torch.ones(2, 5000, device=DEVICE), keys, keys)


@pytest.mark.parametrize("work", [shaped, counted, raced])
def test_nothing_waits_for_the_device(work: Callable[[], Tensor]) -> None:
    with SilentDevice():
        assert work().device == DEVICE


def test_the_device_notices_what_waits() -> None:
    with SilentDevice():
        with pytest.raises(RuntimeError, match="item"):
            bool((torch.ones(2, device=DEVICE) > 0).any())
        with pytest.raises(NotImplementedError, match="nonzero"):
            torch.ones(2, device=DEVICE).nonzero()
        with pytest.raises(RuntimeError, match="from the host"):
            _ = torch.ones(2, device=DEVICE) + torch.from_numpy(np.ones(2)).to(DEVICE)
