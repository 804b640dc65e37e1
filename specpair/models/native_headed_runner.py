"""An EAGLE-3 head beside the compiled runner, by compiled calls that read and write the target's cache.

What the head writes while it drafts lies behind the committed tokens of the sequence, in its own layer alone: in place
of tokens that were rejected, or after all that the cache has where a path of a tree is not moved together yet. It is
dropped: the target's next pass writes better ones there. Where that pass need not, because the token that was drawn
last is the one that was rejected at its place, the first step has written the same bits as `keep` did.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specpair.caches.holding import Holding
from specpair.models.batch import Batch
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.drafting_runner import Asked, HeadDraft
from specpair.models.headed_runner import HeadedRunner
from specpair.models.native_chain_rows import refusal_of
from specpair.models.native_eagle import NativeEagle, keys_of
from specpair.models.native_runner import NativeRunner
from specpair.models.native_structures import Segment
from specpair.models.native_tree_rows import NativeTreeRows
from specpair.models.tree_row import TreeRow
from specpair.options import SequenceOptions
from specpair.speculation.trees.ranked_growth import most_asked
from specpair.speculation.trees.token_tree import ROOT, TokenTree


class NativeHeadedRunner(HeadedRunner):
    """Device thread only."""

    def __init__(self, inner: NativeRunner, head: NativeEagle, layer_count: int, most_tokens: int):
        super().__init__(inner, head.feature_layers, layer_count, most_tokens)
        self.head = head

    def keep(self, batch: Batch, features: Tensor) -> None:
        self.head.keep(batch, features, self.attention, self.joined)

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """Why proposals with these options are not drawn whole."""
        return refusal_of(options)

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "NativeHeadRun":
        return NativeHeadRun(self, holdings, places, most)

    def grow(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> "NativeHeadTrees":
        return NativeHeadTrees(self, holdings, places, most)

    @torch.inference_mode()
    def grow_whole(
        self, holdings: list[Holding], places: list[Sequence[int]], rows: Sequence[TreeRow]
    ) -> list[TokenTree]:
        """Trees of whole proposals, each in the room of the nodes that are asked for."""
        trunks = [
            Trunk(self, holding, own, most_asked(row.limits.max_depth))
            for holding, own, row in zip(holdings, places, rows, strict=True)
        ]
        trees = NativeTreeRows(rows, [trunk.tail for trunk in trunks], [trunk.length for trunk in trunks])
        segments = (Segment * len(trunks))()
        for segment, tree, trunk in zip(segments, trees.structures, trunks, strict=True):
            self.head.locate(segment, trunk.slab, self.attention)
            segment.start, tree.free = trunk.start, trunk.free
        return self.head.grow(trees, segments, torch.stack([trunk.features for trunk in trunks]))

    def features_at(self, holding: Holding, place: int) -> Tensor:
        """The joined features `[width]` of a fed token, float32."""
        stack, _ = keys_of(holding.storage, self.joined)
        return stack.keys[stack.layers.index(self.joined), 0, place].float()

    def reserve(self, holding: Holding, first: int, count: int) -> None:
        """Makes room for `count` tokens at the places from `first` on, which belong to no committed one. Raises
        CapacityExhaustedError."""
        length = holding.length
        if first + count > length:
            self.cache.append(holding, first + count - length)
            self.cache.truncate_to(holding, length)


class Trunk:
    """The committed tokens of one sequence in the cache, and the places for what is drafted after them."""

    def __init__(self, runner: NativeHeadedRunner, holding: Holding, places: Sequence[int], room: int):
        """Raises CapacityExhaustedError if there is no room for so many drafted tokens."""
        self.length = len(places)
        """Fed tokens: the position of the token that a draft begins with."""
        self.start = ordered_length(places)
        """So many of them are where their positions say."""
        self.tail = list(places[self.start :])
        """Where the others are."""
        self.free = self.length if not self.tail else max(holding.length, max(self.tail) + 1)
        runner.reserve(holding, self.free, room)
        self.slab = holding.storage
        self.features = runner.features_at(holding, places[-1])


class NativeHeadRun(HeadDraft):
    """One draft of several sequences, step by step, where a token that was drawn is told with the next call; or whole
    proposals in one call, if it is the only one."""

    def __init__(self, runner: NativeHeadedRunner, holdings: list[Holding], places: list[Sequence[int]], most: int):
        super().__init__(runner.head.outputs)
        self.vocab_size = runner.head.vocab_size
        self._head, self._attention = runner.head, runner.attention
        self._trunks = [Trunk(runner, holding, own, most) for holding, own in zip(holdings, places, strict=True)]
        self._hidden = torch.stack([trunk.features for trunk in self._trunks])
        self._count = 0
        """Steps so far."""

    def draw(self, token_ids: list[int], chains: Sequence[ChainRow]) -> list[DrawnChain]:
        assert not self._count, "steps were taken already"
        segments, _paths = self._segments(self._trunks, max(chain.count for chain in chains))
        return self._head.draw(token_ids, chains, segments, self._hidden)

    @torch.inference_mode()
    def narrow_logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        trunks = [self._trunks[row] for row in rows]
        segments, _paths = self._segments(trunks, self._count + 1)
        positions = [trunk.length + self._count for trunk in trunks]
        is_whole = len(rows) == len(self._hidden)
        hidden, logits = self._head.step(
            token_ids, positions, segments, self._hidden if is_whole else self._hidden[rows]
        )
        if is_whole:
            self._hidden = hidden
        else:
            self._hidden[rows] = hidden
        self._count += 1
        return logits

    def _segments(self, trunks: list[Trunk], most: int) -> "tuple[Any, list[array[int]]]":
        """Where the newest token of each trunk is stored; and the paths that this points to, with room for `most`
        tokens that are drafted."""
        segments, paths = (Segment * len(trunks))(), []
        for first, (made, trunk) in enumerate(zip(segments, trunks, strict=True)):
            self._head.locate(made, trunk.slab, self._attention)
            made.start, made.count, made.first = trunk.length + self._count, 1, first
            if trunk.tail:
                paths.append(array("q", [*trunk.tail, *range(trunk.free, trunk.free + most)]))
                made.start, made.paths = trunk.start, paths[-1].buffer_info()[0]
        return segments, paths


class NativeHeadTrees:
    """One tree for each sequence; all of them grow by one level in each step."""

    def __init__(self, runner: NativeHeadedRunner, holdings: list[Holding], places: list[Sequence[int]], most: int):
        """At most `most` nodes are asked for in each tree."""
        self._head, self._attention, self.outputs = runner.head, runner.attention, runner.head.outputs
        self._trunks = [Trunk(runner, holding, own, most) for holding, own in zip(holdings, places, strict=True)]
        self._paths: list[dict[int, list[int]]] = [{} for _ in holdings]
        """Where the keys of each node's path are, its own last, by its number."""
        self._hidden: list[dict[int, Tensor]] = [{} for _ in holdings]
        """What the head made of each node, `[width]`."""
        self._depth = 0

    @torch.inference_mode()
    def logits(self, asked: list[Asked]) -> Tensor:
        """`[asked, outputs]` after these nodes, all of one level; those of one sequence stand together."""
        hidden = torch.stack([self._before(one) for one in asked])
        segments, paths = (Segment * len(asked))(), []
        for first, (made, one) in enumerate(zip(segments, asked, strict=True)):
            trunk = self._trunks[one.row]
            self._head.locate(made, trunk.slab, self._attention)
            paths.append(array("q", [*trunk.tail, *self._path(one)]))
            made.start, made.count, made.first = trunk.start, 1, first
            made.paths = paths[-1].buffer_info()[0]
        positions = [self._trunks[one.row].length + self._depth for one in asked]
        left, logits = self._head.step([one.token for one in asked], positions, segments, hidden)
        for one, state in zip(asked, left, strict=True):
            self._hidden[one.row][one.node] = state
        self._depth += 1
        return logits

    def _before(self, one: Asked) -> Tensor:
        return self._trunks[one.row].features if one.node == ROOT else self._hidden[one.row][one.parent]

    def _path(self, one: Asked) -> list[int]:
        """Gives a node the next free place."""
        known = self._paths[one.row]
        parent = [] if one.node == ROOT else known[one.parent]
        known[one.node] = [*parent, self._trunks[one.row].free + len(known)]
        return known[one.node]


def ordered_length(places: Sequence[int]) -> int:
    """How many of the first tokens are where their positions say. Those are all, but for a path at the end."""
    if isinstance(places, range):
        return len(places)
    end = len(places)
    while end and places[end - 1] != end - 1:
        end -= 1
    return end
