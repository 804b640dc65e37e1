"""Trees drafted by an EAGLE-3 head, level by level for several sequences at once.

A node is evaluated with its parent's hidden state, and its attention sees the keys of the committed tokens and of its
own path. Every node on that path was evaluated before it, as EAGLE-2 grows trees (Li et al. 2024).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specpair.caches.holding import Holding
from specpair.models.drafting_runner import Asked
from specpair.speculation.trees.token_tree import ROOT

if TYPE_CHECKING:
    from specpair.models.plain_headed_runner import PlainHeadedRunner


class _Trunk:
    """One sequence: keys and values `[key heads, places, size]` of its committed tokens, then of the nodes."""

    def __init__(self, keys: Tensor, values: Tensor, features: Tensor, room: int):
        self.keys, self.values = with_room(keys, room), with_room(values, room)
        self.start = self.end = keys.size(1)
        self.features = features
        """`[width]` of the last fed token."""
        self.hidden: dict[int, Tensor] = {}
        """What the head made of each node, `[width]`."""
        self.paths: dict[int, list[int]] = {}
        """Where the keys of each node's path are, its own last."""

    def add(self, asked: Asked, key: Tensor, value: Tensor) -> None:
        """The keys and values `[key heads, size]` of a node."""
        self.keys[:, self.end], self.values[:, self.end] = key, value
        self.paths[asked.node] = [*(() if asked.node == ROOT else self.paths[asked.parent]), self.end]
        self.end += 1

    def mask(self, nodes: Sequence[int]) -> Tensor:
        """`[nodes, end]`: what each node sees."""
        sees = torch.zeros(len(nodes), self.end, dtype=torch.bool, device=self.keys.device)
        sees[:, : self.start] = True
        for row, node in enumerate(nodes):
            sees[row, self.paths[node]] = True
        return sees


class HeadTrees:
    """One tree for each sequence; all of them grow by one level in each step."""

    def __init__(self, runner: "PlainHeadedRunner", holdings: list[Holding], places: list[Sequence[int]], most: int):
        """At most `most` nodes are asked for in each tree."""
        self.outputs = runner.head.outputs
        self._head, self._lengths = runner.head, [len(own) + 1 for own in places]
        found = [runner.history(holding, own) for holding, own in zip(holdings, places, strict=True)]
        self._trunks = [_Trunk(keys, values, features.float(), most) for keys, values, features in found]
        self._depth = 0

    @torch.inference_mode()
    def logits(self, asked: list[Asked]) -> Tensor:
        """`[asked, outputs]` after these nodes, all of one level; those of one sequence stand together."""
        hidden = torch.stack([self._before(one) for one in asked])
        positions = [self._lengths[one.row] - 1 + self._depth for one in asked]
        tokens, where = (
            torch.tensor(part, device=self._head.device) for part in ([one.token for one in asked], positions)
        )
        residual, (query, key, value) = self._head.enter(tokens, hidden, where)
        for index, one in enumerate(asked):
            self._trunks[one.row].add(one, key[:, index], value[:, index])
        mixed, first = [], 0
        while first < len(asked):
            row = asked[first].row
            nodes = [one.node for one in asked[first:] if one.row == row]
            mixed.append(self._mixed(self._trunks[row], nodes, query[:, first : first + len(nodes)]))
            first += len(nodes)
        hidden, logits = self._head.leave(residual, torch.cat(mixed, dim=1))
        for one, state in zip(asked, hidden, strict=True):
            self._trunks[one.row].hidden[one.node] = state
        self._depth += 1
        return logits

    def _before(self, one: Asked) -> Tensor:
        trunk = self._trunks[one.row]
        return trunk.features if one.node == ROOT else trunk.hidden[one.parent]

    def _mixed(self, trunk: _Trunk, nodes: Sequence[int], query: Tensor) -> Tensor:
        """`[heads, nodes, size]`."""
        mask = trunk.mask(nodes).repeat(query.size(0) // trunk.keys.size(0), 1)
        return self._head.attend(query, trunk.keys[:, : trunk.end], trunk.values[:, : trunk.end], mask)


def with_room(cached: Tensor, count: int) -> Tensor:
    """A copy of `[heads, length, size]` with room for more tokens."""
    copy = cached.new_empty(cached.size(0), cached.size(1) + count, cached.size(2))
    copy[:, : cached.size(1)] = cached
    return copy
