"""A rank that does what the leader's cache tells has the same in its slots."""

import random

import pytest
import torch
from torch import Tensor

from specpair.caches.cache import LayerShape
from specpair.caches.holding import Holding, Segment
from specpair.caches.paged_cache import PagedCache
from specpair.errors import CapacityExhaustedError
from specpair.models.leading_cache import LeadingCache
from specpair.models.shard_follower import apply_moves

LAYERS = {0: LayerShape(2, 3, 4), 1: LayerShape(1, 2, 2)}
SIZES = (LAYERS, 24, 4, torch.float32, torch.device("cpu"))
STEPS = 400


class Pair:
    """A leader and a follower, and the sequences with what should be stored of each."""

    def __init__(self, seed: int):
        self.leader, self.follower = LeadingCache(*SIZES), PagedCache(*SIZES)
        self.held: list[tuple[Holding, list[float]]] = []
        self.choice = random.Random(seed)
        self.moved = 0

    def feed(self, holding: Holding, marks: list[float]) -> None:
        """A pass of one sequence on both."""
        start, count = holding.length, self.choice.randint(1, 6)
        try:
            self.leader.append(holding, count)
        except CapacityExhaustedError:
            return
        new = [self.choice.random() for _ in range(count)]
        marks += new
        moves = self.leader.take_moves()
        apply_moves(self.follower, moves)
        self.moved += len(moves)
        segment = Segment(holding, start, count)
        told = Segment(Holding(start + count, list(holding.storage)), start, count)
        for cache, part in ((self.leader, segment), (self.follower, told)):
            access = cache.access([part])
            for layer, shape in LAYERS.items():
                access.write(layer, *content(shape, new))

    def step(self) -> None:
        kind = self.choice.choice(("open", "feed", "feed", "cut", "fork", "path", "free"))
        if kind == "open" or not self.held:
            self.held.append((self.leader.open([]), []))
            return
        holding, marks = self.choice.choice(self.held)
        if kind == "feed":
            self.feed(holding, marks)
        elif kind == "cut":
            self.leader.truncate_to(holding, self.choice.randint(0, holding.length))
            del marks[holding.length :]
        elif kind == "fork":
            length = self.choice.randint(0, holding.length)
            self.held.append((self.leader.fork(holding, length), marks[:length]))
        elif kind == "path" and holding.length:
            start = holding.length  # a tree's tokens are always those of the last pass
            self.feed(holding, marks)
            path = [at for at in range(holding.length - start) if self.choice.random() < 0.6]
            self.leader.keep_path(holding, start, path)
            marks[start:] = [marks[start + at] for at in path]
        elif kind == "free":
            self.leader.free(holding)
            self.held = [entry for entry in self.held if entry[0] is not holding]

    def check(self) -> None:
        """Every sequence is there, at the latest once the last moves are told."""
        apply_moves(self.follower, self.leader.take_moves())
        for holding, marks in self.held:
            if not holding.length:
                continue
            told = Segment(Holding(holding.length, list(holding.storage)), holding.length - 1, 1)
            access = self.follower.access([told])
            for layer, shape in LAYERS.items():
                keys, values = access.read(layer, 0)
                assert torch.equal(keys, content(shape, marks)[0]) and torch.equal(values, content(shape, marks)[1])


def content(shape: LayerShape, marks: list[float]) -> tuple[Tensor, Tensor]:
    row = torch.tensor(marks)[None, :, None]
    return row.expand(shape.heads, -1, shape.key_size), -row.expand(shape.heads, -1, shape.value_size)


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_holds_what_the_leader_says(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(STEPS):
        pair.step()
    pair.check()
    assert pair.moved >= 10, "nothing was ever moved: the test says little"
