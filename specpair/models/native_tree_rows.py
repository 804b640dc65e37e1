"""Trees as the compiled call that grows them takes and fills them."""

from array import array
from collections.abc import Sequence

from specpair.models.native_structures import Tree
from specpair.models.tree_row import TreeRow
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.speculation.trees.token_tree import TokenTree


class NativeTreeRows:
    """The memory of trees for one call."""

    def __init__(self, rows: Sequence[TreeRow], tails: Sequence[Sequence[int]], positions: Sequence[int]):
        """`tails`: where the cache has the tokens before the last committed one of each sequence that are out of order;
        `positions`: of the last committed tokens."""
        self.structures = (Tree * len(rows))()
        self._numbers: list[array[int]] = []
        self.longest = 0
        """Where the deepest of them may end."""
        for structure, row, tail, position in zip(self.structures, rows, tails, positions, strict=True):
            fill(structure, row, position)
            most = row.limits.max_nodes
            numbers = array("q", [*tail, *[0] * (2 * most)])
            structure.tail, structure.tail_count = numbers.buffer_info()[0], len(tail)
            structure.tokens = structure.tail + 8 * len(tail)
            structure.parents = structure.tokens + 8 * most
            self._numbers.append(numbers)
            self.longest = max(self.longest, position + row.limits.max_depth)

    def grown(self) -> list[TokenTree]:
        """What the call has grown."""
        return [tree_of(own, numbers) for own, numbers in zip(self.structures, self._numbers, strict=True)]


def fill(own: Tree, row: TreeRow, position: int) -> None:
    nodes, depth = row.limits.max_nodes, row.limits.max_depth
    assert min(nodes, depth) > 0 and row.limits == GrowthLimits(max_nodes=nodes, max_depth=depth), row.limits
    own.token, own.position = row.token, position
    own.most_nodes, own.most_depth = nodes, depth
    own.seed, own.temperature = row.sampling.seed, row.sampling.temperature


def tree_of(own: Tree, numbers: "array[int]") -> TokenTree:
    tokens, parents = own.tail_count, own.tail_count + own.most_nodes
    return TokenTree(
        tokens=tuple(numbers[tokens : tokens + own.count]), parents=tuple(numbers[parents : parents + own.count])
    )
