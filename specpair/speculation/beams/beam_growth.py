"""Continues beams by the draft's own beam search. Every beam that it meets becomes a candidate for the target.

The draft keeps more beams than the search has, since its order of them differs from the target's (Leviathan et al.,
"Fast Inference from Transformers via Speculative Decoding", appendix A.4).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from specpair.speculation.beams.beam_options import MAX_TREE_NODES
from specpair.speculation.beams.beam_search import Continuation
from specpair.speculation.beams.beam_tree import BeamTree


@dataclass(frozen=True, kw_only=True)
class GrowthPlan:
    """How far to continue."""

    depth: int
    """Tokens, each of which takes a pass of the draft."""
    width: int
    """Beams that are kept after each."""
    max_nodes: int = MAX_TREE_NODES
    """Tokens of the whole tree."""
    stop_token_ids: frozenset[int] = frozenset()
    """They end a beam: nothing follows them."""

    @property
    def top_count(self) -> int:
        """Tokens that are needed after each beam."""
        return self.width + len(self.stop_token_ids)


class BeamGrowth:
    """A tree that grows by one token of each beam at a time: `extend` the `frontier`, until there is none."""

    def __init__(self, plan: GrowthPlan, tree: BeamTree, nodes: Sequence[int], scores: Sequence[float]):
        """`nodes` are the last tokens of the beams in the tree, which grows; `scores` are their sums of logprobs."""
        self.plan = plan
        self.tree = tree
        self.first = len(tree)
        """The first node that is grown."""
        self.frontier = list(nodes)
        self._scores = list(scores)
        self._depth = 0
        self._end_if_done()

    def extend(self, rows: Sequence[Sequence[Continuation]]) -> None:
        """`rows` has, for each node of the frontier, its `top_count` likeliest tokens."""
        room = min(self.plan.width, self.plan.max_nodes - len(self.tree))
        best = heapq.nlargest(
            room,
            (
                (score + logprob, node, token)
                for node, score, row in zip(self.frontier, self._scores, rows, strict=True)
                for token, logprob in row
                if token not in self.plan.stop_token_ids
            ),
            key=lambda one: one[0],
        )
        self._scores = [score for score, _, _ in best]
        self.frontier = [self.tree.add(node, token) for _, node, token in best]
        self._depth += 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._depth >= self.plan.depth or len(self.tree) >= self.plan.max_nodes:
            self.frontier = []
