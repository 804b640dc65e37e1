"""Both caches against a plain list of what every sequence should hold, the contiguous one with and without tails."""

from contextlib import suppress

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from specpair.caches.block_pool import BlockPool
from specpair.caches.cache import KeyValueCache, LayerShape, blocks_for
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.caches.holding import Holding, Segment
from specpair.caches.paged_cache import PagedCache
from specpair.errors import CapacityExhaustedError

LAYERS = {0: LayerShape(2, 3, 4), 1: LayerShape(1, 2, 2)}
BLOCKS, BLOCK_SIZE = 12, 4
CACHES = {"paged": PagedCache, "contiguous": ContiguousCache}


def make_cache(kind: str) -> KeyValueCache:
    return CACHES[kind](LAYERS, BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu"))


def content(shape: LayerShape, token_ids: list[int], start: int) -> tuple[Tensor, Tensor]:
    """Keys and values that say which token at which position after which beginning they belong to."""
    marks = torch.tensor([float(token + 100 * (start + i)) for i, token in enumerate(token_ids)])
    keys = marks[None, :, None].expand(shape.heads, -1, shape.key_size)
    return keys, -marks[None, :, None].expand(shape.heads, -1, shape.value_size)


def feed(cache: KeyValueCache, holding: Holding, token_ids: list[int]) -> None:
    start = holding.length
    cache.append(holding, len(token_ids))
    access = cache.access([Segment(holding, start, len(token_ids))])
    for layer, shape in LAYERS.items():
        access.write(layer, *content(shape, token_ids, start))


def check_content(cache: KeyValueCache, holding: Holding, token_ids: list[int]) -> None:
    assert holding.length == len(token_ids)
    if not token_ids:
        return
    access = cache.access([Segment(holding, len(token_ids) - 1, 1)])
    for layer, shape in LAYERS.items():
        keys, values = access.read(layer, 0)
        expected_keys, expected_values = content(shape, token_ids, 0)
        assert torch.equal(keys, expected_keys) and torch.equal(values, expected_values)


class CacheMachine(RuleBasedStateMachine):
    """Open, append, roll back, fork, keep, free in any order; what is read is what was written."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.cache = make_cache(self.kind)
        self.held: list[tuple[Holding, list[int]]] = []

    @rule(token_ids=st.lists(st.integers(0, 1), max_size=14))
    def open(self, token_ids: list[int]) -> None:
        holding = self.cache.open(token_ids)
        assert holding.length <= len(token_ids)
        self.held.append((holding, token_ids[: holding.length]))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def append(self, data: st.DataObject, token_ids: list[int]) -> None:
        holding, known = data.draw(st.sampled_from(self.held))
        free = self.cache.free_block_count
        try:
            feed(self.cache, holding, token_ids)
        except CapacityExhaustedError:
            assert self.cache.free_block_count >= free, "places for tails may have been given back"
        else:
            known.extend(token_ids)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def append_a_path_of_a_tree(self, data: st.DataObject, token_ids: list[int]) -> None:
        """Other tokens lie between those of the path, and go."""
        holding, known = data.draw(st.sampled_from(self.held))
        path = sorted(data.draw(st.sets(st.integers(0, 12), min_size=len(token_ids), max_size=len(token_ids))))
        start, count = holding.length, path[-1] + 1 + data.draw(st.integers(0, 2))
        with suppress(CapacityExhaustedError):
            self.cache.append(holding, count)
            access = self.cache.access([Segment(holding, start, count)])
            for layer, shape in LAYERS.items():
                parts = content(shape, token_ids, start)
                tree = [torch.full((shape.heads, count, part.size(2)), -7.0) for part in parts]
                for whole, part in zip(tree, parts, strict=True):
                    whole[:, path] = part
                access.write(layer, *tree)
            self.cache.keep_path(holding, start, path)
            known.extend(token_ids)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        holding, known = data.draw(st.sampled_from(self.held))
        length = data.draw(st.integers(0, len(known)))
        self.cache.truncate_to(holding, length)
        del known[length:]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), room=st.integers(0, 4))
    def fork(self, data: st.DataObject, room: int) -> None:
        holding, known = data.draw(st.sampled_from(self.held))
        length = data.draw(st.integers(0, len(known)))
        with suppress(CapacityExhaustedError):
            self.held.append((self.cache.fork(holding, length, room), known[:length]))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        holding, known = data.draw(st.sampled_from(self.held))
        self.cache.keep(holding, list(known))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kept=st.booleans())
    def free(self, data: st.DataObject, kept: bool) -> None:
        entry = data.draw(st.sampled_from(self.held))
        if kept:
            self.cache.keep(entry[0], list(entry[1]))
        self.cache.free(entry[0])
        self.held.remove(entry)

    @invariant()
    def holds_what_was_written(self) -> None:
        self.cache.check_integrity()
        for holding, known in self.held:
            check_content(self.cache, holding, known)

    def teardown(self) -> None:
        for holding, _ in self.held:
            self.cache.free(holding)
        self.cache.check_integrity()
        assert self.cache.free_block_count == BLOCKS


class PagedMachine(CacheMachine):
    kind = "paged"


class ContiguousMachine(CacheMachine):
    kind = "contiguous"


class TailsMachine(ContiguousMachine):
    def __init__(self) -> None:
        super().__init__()
        assert isinstance(self.cache, ContiguousCache)
        self.cache.makes_tails = True


TestPagedCache = PagedMachine.TestCase
TestContiguousCache = ContiguousMachine.TestCase
TestTails = TailsMachine.TestCase
TestPagedCache.settings = TestContiguousCache.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestTails.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("kind", CACHES)
def test_kept_prefix_is_found(kind: str) -> None:
    cache = make_cache(kind)
    tokens = list(range(10))
    first = cache.open(tokens)
    feed(cache, first, tokens)
    cache.keep(first, tokens)
    cache.free(first)
    second = cache.open([*tokens[:9], 77])
    assert second.length == (8 if kind == "paged" else 9)
    check_content(cache, second, tokens[: second.length])


@pytest.mark.parametrize("lengths", [(6, 9, 6), (9, 6, 9), (6, 6, 9)])
def test_what_another_kept_slab_begins_with_is_not_kept_beside_it(lengths: tuple[int, ...]) -> None:
    """The same text again and again, as far as each request came."""
    cache, tokens = make_cache("contiguous"), list(range(9))
    holdings = [cache.open([]) for _ in lengths]
    for holding, length in zip(holdings, lengths, strict=True):
        feed(cache, holding, tokens[:length])
        cache.keep(holding, tokens[:length])
    for holding in holdings:
        cache.free(holding)
        cache.check_integrity()
    assert cache.block_counts().kept < 2 * blocks_for(9, BLOCK_SIZE)
    found = cache.open([*tokens, 77])
    assert found.length == 9
    check_content(cache, found, tokens)


def test_paged_fork_shares_blocks_until_one_side_writes() -> None:
    cache = make_cache("paged")
    first = cache.open([])
    feed(cache, first, [1] * 6)
    free = cache.free_block_count
    second = cache.fork(first, 6)
    assert cache.free_block_count == free
    feed(cache, second, [0])
    assert cache.free_block_count == free - 1
    check_content(cache, first, [1] * 6)
    check_content(cache, second, [1] * 6 + [0])


@pytest.mark.parametrize("kind", CACHES)
def test_full_cache_refuses_without_change(kind: str) -> None:
    cache = make_cache(kind)
    holding = cache.open([])
    feed(cache, holding, [1] * (BLOCKS * BLOCK_SIZE))
    with pytest.raises(CapacityExhaustedError, match="0 free"):
        cache.append(holding, 1)
    assert holding.length == BLOCKS * BLOCK_SIZE


@pytest.mark.parametrize("kind", CACHES)
def test_blocks_that_others_can_have_are_told(kind: str) -> None:
    """Also those of a slab whose tokens were all dropped, as after a pass that failed."""
    cache = make_cache(kind)
    holding = cache.open([])
    assert not cache.has_blocks(holding)
    feed(cache, holding, [1] * BLOCK_SIZE)
    assert cache.has_blocks(holding)
    cache.truncate_to(holding, 0)
    assert cache.has_blocks(holding) is (cache.free_block_count < BLOCKS)


def test_least_recently_used_prefix_goes_first() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    for number, block in enumerate(blocks):
        pool.keep(block, 0, (number,))
    pool.release([blocks[0]])
    pool.release([blocks[1]])
    pool.allocate(1)
    assert pool.find([0], 1) == [] and pool.find([1], 1) == [blocks[1]]


@pytest.mark.parametrize("kind", CACHES)
def test_rewritten_tokens_are_no_longer_found(kind: str) -> None:
    """Kept, rolled back and written again with other tokens: the old beginning must not be found there."""
    cache = make_cache(kind)
    holding = cache.open([])
    feed(cache, holding, [1] * 8)
    cache.keep(holding, [1] * 8)
    cache.truncate_to(holding, 2)
    feed(cache, holding, [0] * 6)
    cache.free(holding)
    found = cache.open([1] * 8)
    check_content(cache, found, [1] * found.length)
