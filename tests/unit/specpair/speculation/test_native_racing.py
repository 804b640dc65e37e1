"""The compiled race: numpy's choices and outlooks, whatever the rows."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.native.library import native_library
from specpair.speculation import gumbel, native_racing
from specpair.speculation.gumbel import choose, choose_and_look
from specpair.speculation.native_racing import race
from specpair.speculation.outlook import Outlook

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
WIDTHS = [1, 2, 3, 5, 8, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300, 2047, 2048, 2049, 2065, 4096, 5001]
SPOILERS = ["none", "sparse", "one-hot", "all zero", "all NaN", "one NaN", "long", "short", "huge", "negative"]
HIGHEST = 2**64 - 1


@pytest.fixture(autouse=True, scope="module")
def loaded() -> Iterator[None]:
    native_library()
    yield


def by_numpy(rows: Tensor, seeds: Sequence[int], positions: Sequence[int], width: int) -> tuple[Tensor, list[Outlook]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gumbel, "race", lambda *arguments: None)
        chosen, outlooks = choose_and_look(rows, seeds, positions, width)
        assert torch.equal(choose(rows, seeds, positions), chosen)
    return chosen, outlooks


def check(rows: Tensor, seeds: Sequence[int], positions: Sequence[int], width: int = 8) -> Tensor:
    """Compares compiled with numpy's, and returns the choices."""
    expected, guesses = by_numpy(rows, seeds, positions, width)
    raced = race(rows, seeds, positions, width)
    assert raced is not None and torch.equal(raced[0], expected)
    assert torch.equal(choose(rows, seeds, positions), expected)
    for own, other in zip(raced[1], guesses, strict=True):
        assert own.token_ids == other.token_ids
        assert own.shares == pytest.approx(other.shares, rel=1e-12, nan_ok=True)
    return expected


def random_rows(count: int, width: int, seed: int, spread: float = 3.0) -> Tensor:
    return (torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * spread).softmax(-1)


def spoil(rows: Tensor, spoiler: str, seed: int) -> None:
    """Makes one row special, and of some kinds all."""
    generator = torch.Generator().manual_seed(seed)
    row = rows[seed % len(rows)]
    match spoiler:
        case "sparse":
            rows[torch.rand(rows.shape, generator=generator) < 0.9] = 0.0
        case "one-hot":
            row[:] = torch.eye(len(row))[seed % len(row)]
        case "all zero":
            row[:] = 0.0
        case "all NaN":
            row[:] = torch.nan
        case "one NaN":
            row[seed % len(row)] = torch.nan
        case "long":
            rows *= 1e-7
        case "short":
            rows *= 40.0
        case "huge":
            row[torch.rand(len(row), generator=generator) < 0.3] = 1e30
        case "negative":
            row[torch.rand(len(row), generator=generator) < 0.5] *= -1.0
        case _:
            pass


@given(
    width=st.one_of(st.sampled_from(WIDTHS), st.integers(1, 700)),
    count=st.integers(1, 9),
    spread=st.floats(0.0, 9.0),
    spoiler=st.sampled_from(SPOILERS),
    keys=st.lists(st.tuples(st.integers(0, HIGHEST), st.integers(0, HIGHEST)), min_size=1, max_size=9),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=400)
def test_choices_and_outlooks_are_those_of_numpy(width, count, spread, spoiler, keys, seed) -> None:
    rows = random_rows(count, width, seed, spread)
    spoil(rows, spoiler, seed)
    own = [keys[i % len(keys)] for i in range(count)]  # some are shared
    check(rows, [key[0] for key in own], [key[1] for key in own], 1 + seed % 9)


@pytest.mark.parametrize("width", WIDTHS)
def test_all_upper_bits_are_those_of_numpy(width: int) -> None:
    """A row in which every token arrives in time, and all are looked at, has them in its order."""
    outlooks = race(torch.full((1, width), 9.0), [HIGHEST - 1], [3], width)
    upper = gumbel._lanes([(HIGHEST - 1, 3)], width)[0].astype(np.int64)
    assert outlooks is not None
    assert outlooks[1][0].token_ids == np.argsort(upper, kind="stable").tolist()
    speeds = 1 / -np.log1p(-(np.sort(upper) + 0.5) / 2**16)
    assert outlooks[1][0].shares == pytest.approx(speeds / speeds.sum(), rel=1e-12)


@pytest.mark.parametrize("same", [2, 3])
def test_tokens_of_equal_upper_bits_are_told_apart_by_the_lower(same: int) -> None:
    """Made on purpose: nobody else is in the row."""
    winners = []
    for position in range(40):
        upper = gumbel._lanes([(5, position)], 20_000)[0]
        values, counts = np.unique(upper, return_counts=True)
        rows = torch.zeros(9, 20_000)
        groups = [np.flatnonzero(upper == value) for value in values[counts == same][:9]]
        for row, group in zip(rows, groups, strict=True):
            row[group] = 1.0 / same
        chosen = check(rows, [5] * 9, [position] * 9)
        winners += [group.tolist().index(token) for group, token in zip(groups, chosen.tolist(), strict=True)]
    assert np.bincount(winners, minlength=same).min() > 0.2 * len(winners)


def test_rows_whose_first_comes_late_are_looked_at_again() -> None:
    """Beside others of the same noise, and with other noise."""
    rows = random_rows(300, 90, 1) * torch.logspace(-6, 1, 300)[:, None]
    for positions in ([4] * 300, list(range(300))):
        chosen = check(rows, [8] * 300, positions)
        alone = [choose(rows[i : i + 1], [8], [positions[i]]).item() for i in range(300)]
        assert chosen.tolist() == alone


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_many_rows(threads: int) -> None:
    before = torch.get_num_threads()
    rows = random_rows(40, 30_000, 2)
    assert rows.numel() > native_racing.FEW_LOGITS
    try:
        torch.set_num_threads(threads)
        check(rows, [i % 7 for i in range(40)], [9] * 40)
        check(rows, [i // 4 for i in range(40)], [9] * 40)
    finally:
        torch.set_num_threads(before)


def test_no_token_beyond_a_row_wins() -> None:
    """Its neighbour's would, if the last register went on into it."""
    rows = torch.tensor([[1e-30] * 17, [1.0] * 17])
    for position in range(20_000):
        raced = race(rows[:1], [0], [position])
        assert raced is not None and raced[0].item() < 17


def test_of_tokens_that_arrive_together_the_last_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.rand(20, 100)
    rows[:, [7, 40, 93]] = torch.inf
    raced = race(rows, range(20), [0] * 20)
    monkeypatch.setattr(gumbel, "race", lambda *arguments: None)
    assert raced is not None and raced[0].tolist() == choose(rows, range(20), [0] * 20).tolist() == [93] * 20


def test_rows_in_another_order_in_memory() -> None:
    rows = random_rows(200, 50, 3).T
    assert not rows.is_contiguous()
    check(rows, range(50), [0] * 50)


def test_what_it_does_not_know_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert race(torch.ones(1, 3, dtype=torch.float64), [0], [0]) is None
    assert race(torch.ones(1, 3, device="meta"), [0], [0]) is None
    monkeypatch.setattr(native_racing, "quick_functions", lambda count: None)
    assert race(torch.ones(1, 3), [0], [0]) is None


def test_each_row_needs_its_key() -> None:
    for seeds, positions in (([0], [0, 1]), ([0, 1], [0]), ([0, 1, 2], [0, 1, 2])):
        with pytest.raises(ValueError, match="2 rows"):
            race(torch.ones(2, 3), seeds, positions)


def test_no_rows_have_no_choices() -> None:
    raced = race(torch.ones(0, 3), [], [], 8)
    assert raced is not None and len(raced[0]) == 0 and raced[1] == []
