"""Forks that are tails in the slab of another sequence: what they cost, read, and leave."""

import pytest
import torch

from specpair.caches.cache import blocks_for
from specpair.caches.contiguous_cache import ContiguousCache
from tests.unit.specpair.caches.test_caches import BLOCK_SIZE, LAYERS, check_content, feed

ROOMY = 100


def cache_with_tails(block_count: int = ROOMY) -> ContiguousCache:
    cache = ContiguousCache(LAYERS, block_count, BLOCK_SIZE, torch.float32, torch.device("cpu"))
    cache.makes_tails = True
    return cache


def test_tails_take_no_memory_of_their_own_and_the_last_one_becomes_the_sequence() -> None:
    cache = cache_with_tails()
    first = cache.open([])
    feed(cache, first, [1] * 6)
    tails = [cache.fork(first, length, 3) for length in (6, 4)]
    held, keys = cache.block_counts().used, first.storage.stacks[0].keys
    assert cache.block_counts().shared == held
    for number, tail in enumerate(tails):
        feed(cache, tail, [number] * 3)
    assert cache.block_counts().used == held
    cache.free(first)
    cache.free(tails[0])
    assert cache.block_counts().used == held
    feed(cache, tails[1], [0])
    assert tails[1].storage.stacks[0].keys is keys
    assert cache.block_counts() == (held, 0, 0, ROOMY - held, 0)
    check_content(cache, tails[1], [1] * 4 + [1] * 3 + [0])


def test_what_a_tail_reads_is_not_written_over() -> None:
    cache = cache_with_tails()
    first = cache.open([])
    feed(cache, first, [1] * 6)
    tail = cache.fork(first, 6, 2)
    cache.truncate_to(first, 3)
    feed(cache, first, [0] * 3)
    feed(cache, tail, [0])
    check_content(cache, first, [1] * 3 + [0] * 3)
    check_content(cache, tail, [1] * 6 + [0])


def test_places_for_tails_are_given_back_when_others_need_them() -> None:
    cache = cache_with_tails()
    first = cache.open([])
    feed(cache, first, [1] * 6)
    cache.free(cache.fork(first, 6, 3))
    assert cache.block_counts().used > blocks_for(6, BLOCK_SIZE)
    other = cache.open([])
    feed(cache, other, [0] * (ROOMY * BLOCK_SIZE - 8))
    check_content(cache, first, [1] * 6)
    cache.check_integrity()
    assert cache.block_counts() == (ROOMY, 0, 0, 0, 0)


def test_a_sequence_with_many_tails_seldom_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generation is of 28; the one that is used is among the first, and the owner since."""
    cache = cache_with_tails(4000)
    own = cache.open([])
    cache.append(own, 500)
    moves: list[int] = []
    move = cache._move
    monkeypatch.setattr(cache, "_move", lambda *arguments: moves.append(generation) or move(*arguments))
    for generation in range(60):
        tails = [cache.fork(own, own.length - place % 6, 7) for place in range(28)]
        for tail in tails:
            cache.append(tail, 6)
        cache.free(own)
        own = tails.pop(generation % 5)
        for tail in tails:
            cache.free(tail)
    cache.check_integrity()
    assert len(moves) <= 4


def test_a_tail_of_a_tail_begins_with_what_that_one_has() -> None:
    """As after a look at the row behind a proposal."""
    cache = cache_with_tails()
    first = cache.open([])
    feed(cache, first, [1] * 6)
    look = cache.fork(first, 5, 2)
    feed(cache, look, [0])
    behind = cache.fork(look, 6, 2)
    feed(cache, behind, [1, 0])
    cache.free(look)
    check_content(cache, behind, [1] * 5 + [0, 1, 0])
    assert cache.block_counts().used == blocks_for(first.storage.stacks[0].keys.size(2), BLOCK_SIZE)
