"""The tree of what running beams have after their common prefix, and of candidates after them."""

from collections.abc import Iterable, Sequence

from specpair.speculation.beams.beam_options import MAX_TREE_NODES
from specpair.speculation.beams.beam_search import Beam

ROOT = -1
"""The last token of the common prefix, as the parent of a node."""


class BeamTree:
    """Tokens in a tree, found by their path. Nodes are added after their parents."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int) -> int:
        """The node of this token after `parent`, which may be there already."""
        node = self._children.setdefault((parent, token), len(self.tokens))
        if node == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
        return node

    def add_path(self, tokens: Iterable[int]) -> int:
        """The last node of a path from the root; the root itself for no tokens."""
        node = ROOT
        for token in tokens:
            node = self.add(node, token)
        return node

    def find(self, tokens: Iterable[int]) -> int | None:
        """The last node of a path from the root; None if it is not in the tree."""
        node = ROOT
        for token in tokens:
            found = self._children.get((node, token))
            if found is None:
                return None
            node = found
        return node


class BeamGroup:
    """Beams that one pass scores: their common prefix, and the tree of the rest."""

    def __init__(self, beams: Sequence[Beam]):
        """At least one beam; all have the same length."""
        self.beams = tuple(beams)
        self.prefix = beams[0].tokens[: shared_length([beam.tokens for beam in beams])]
        self.tree = BeamTree()
        self.nodes = [self.tree.add_path(beam.tokens[len(self.prefix) :]) for beam in beams]
        """The last node of each beam."""
        self._own_count = len(self.tree)

    @property
    def asked(self) -> list[int]:
        """The nodes to score: the ends of the beams, and the candidates that were added to the tree."""
        return [*self.nodes, *range(self._own_count, len(self.tree))]

    @property
    def depth(self) -> int:
        """The number of tokens by which the longest candidate continues a beam."""
        depths: dict[int, int] = {}
        for node in range(self._own_count, len(self.tree)):
            depths[node] = 1 + depths.get(self.tree.parents[node], 0)
        return max(depths.values(), default=0)

    def node(self, tokens: Sequence[int]) -> int | None:
        """The node where a beam with these tokens ends; None if it is not here."""
        if tuple(tokens[: len(self.prefix)]) != self.prefix:
            return None
        return self.tree.find(tokens[len(self.prefix) :])


def grouped(beams: Sequence[Beam], room: int, max_nodes: int = MAX_TREE_NODES) -> list[BeamGroup]:
    """The beams in as few groups as their branches allow. A group's tree has at most `max_nodes` tokens, and at most
    `room` together with its prefix: each node takes a place in the cache.

    A group that is too large is split where its beams part: each part has a longer prefix, and a single beam no tree.
    """
    group = BeamGroup(beams)
    if len(group.tree) <= min(max_nodes, room - len(group.prefix)):
        return [group]
    parts: dict[int, list[Beam]] = {}
    for beam in beams:
        parts.setdefault(beam.tokens[len(group.prefix)], []).append(beam)
    return [split for part in parts.values() for split in grouped(part, room, max_nodes)]


def shared_length(paths: Sequence[Sequence[int]]) -> int:
    """The number of first tokens that all paths share."""
    length = min(map(len, paths))
    first = paths[0]
    for path in paths[1:]:
        length = next((i for i in range(length) if path[i] != first[i]), length)
    return length
