"""The buffers of captured passes: what a pass leaves in them, and what the next one reads."""

import numpy as np
import pytest
import torch

from specpair.caches.cache import LayerShape
from specpair.caches.paged_cache import PagedCache
from specpair.models.captured_rows import DeviceRows, HostRows, RowBuffers

BLOCKS, BLOCK_SIZE = 40, 4
SPARE_SLOT = BLOCKS * BLOCK_SIZE


def make_buffers(row_count: int, width: int) -> RowBuffers:
    layers = {0: LayerShape(1, 2, 2)}
    cache = PagedCache(layers, BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu"), has_spare_block=True)
    return RowBuffers(row_count, width, cache)


def some_rows(count: int, width: int, first: int = 1) -> HostRows:
    """All their numbers are different, from `first` on."""
    numbers = np.arange(first, first + count * (3 + width))
    return HostRows(
        numbers=numbers[: 3 * count].reshape(3, count),
        tables=numbers[3 * count :].reshape(count, width).astype(np.int32),
    )


def run(buffers: RowBuffers, rows: HostRows, row_count: int, wanted: tuple[int, ...] = ()) -> DeviceRows:
    """What the pass would read."""
    buffers.run(lambda: buffers.load(row_count).token_ids, rows, row_count, wanted)
    return buffers.first(row_count)


def assert_rows(found: DeviceRows, rows: HostRows) -> None:
    """The first are these, and all after them are padding."""
    count = len(rows)
    assert len(found) >= count
    for tensor, expected, padding in zip(
        (found.token_ids, found.positions, found.slots, found.tables),
        (*rows.numbers, rows.tables),
        (0, 0, SPARE_SLOT, BLOCKS),
        strict=True,
    ):
        assert np.array_equal(tensor[:count].numpy(), expected)
        assert (tensor[count:] == padding).all()


@pytest.mark.parametrize("width", [4, 5])
@pytest.mark.parametrize(("count", "row_count"), [(1, 5), (2, 4), (3, 3), (0, 5)])
def test_rows_after_those_of_a_pass_are_padding(count: int, row_count: int, width: int) -> None:
    """Also where an earlier pass had more."""
    buffers = make_buffers(5, width)
    earlier, rows = some_rows(5, width), some_rows(count, width, first=100)
    assert_rows(run(buffers, earlier, 5), earlier)
    assert_rows(run(buffers, rows, row_count), rows)


def test_cleared_rows_are_padding_on_the_device() -> None:
    buffers = make_buffers(5, 5)
    run(buffers, some_rows(5, 5), 5)
    buffers.clear(3)
    assert_rows(buffers.first(3), some_rows(0, 5))


@pytest.mark.parametrize("row_count", [3, 5])
def test_an_odd_number_of_blocks_is_loaded_to_the_last(row_count: int) -> None:
    """Two blocks are one number of the buffers."""
    buffers = make_buffers(5, 3)
    rows = some_rows(row_count, 3)
    assert_rows(run(buffers, rows, row_count), rows)
    assert int(buffers.first(row_count).tables[-1, -1]) == rows.tables[-1, -1] != 0


def test_the_rows_that_are_wanted_stay() -> None:
    buffers = make_buffers(5, 2)
    run(buffers, some_rows(4, 2), 5, wanted=(3, 1))
    assert buffers.wanted(2).tolist() == [3, 1]


def test_buffers_beside_others_fill_the_same_tensors_from_memory_of_their_own() -> None:
    buffers = make_buffers(3, 3)
    beside = buffers.beside()
    first, second = some_rows(3, 3), some_rows(3, 3, first=100)
    found = run(buffers, first, 3)
    run(beside, second, 3)
    assert_rows(found, second)
    buffers.load(3)
    assert_rows(found, first)
    beside.load(3)
    assert_rows(found, second)


def test_tables_of_another_width_are_refused() -> None:
    buffers = make_buffers(3, 3)
    for width in (2, 4):
        with pytest.raises(AssertionError):
            run(buffers, some_rows(2, width), 3)
