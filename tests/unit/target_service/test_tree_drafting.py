"""Trees of a head: a row that is not finite ends its own tree, which keeps what it has; a head that gives few tokens
drafts with narrow rows what it would with wide ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

from specpair.models.drafting_runner import Asked
from specpair.models.output_tokens import OutputTokens
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.trees.ranked_growth import GrowthLimits, RankedGrowth
from specpair.speculation.trees.token_tree import TokenTree
from target_service.own_proposal import OwnDraft
from target_service.tree_drafting import grow_level

VOCABULARY, DEPTH = 16, 3
RULES = {
    "greedy": SequenceOptions(sampling=SamplingOptions(temperature=0.0)),
    "coupled": SequenceOptions(sampling=SamplingOptions(temperature=0.8, seed=3), rule=Rule.COUPLED),
}


class TableTrees:
    """What follows a token depends on it alone; the rows of `bad` sequences are not finite from a level on."""

    def __init__(self, bad: set[int], level: int, outputs: OutputTokens | None = None):
        self.outputs = outputs
        self._table = 2 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(1))
        self._bad, self._level, self._depth = bad, level, 0

    def logits(self, asked: list[Asked]) -> Tensor:
        rows = self._table[[one.token for one in asked]]
        if self._depth >= self._level:
            firsts = {one.row: place for place, one in reversed(list(enumerate(asked)))}
            rows[[firsts[row] for row in self._bad if row in firsts], 5] = torch.nan
        self._depth += 1
        return rows if self.outputs is None else rows[:, self.outputs.token_ids]


class WideTrees(TableTrees):
    """The same head with rows of the whole vocabulary."""

    def __init__(self, outputs: OutputTokens):
        super().__init__(set(), 0)
        self._given = outputs

    def logits(self, asked: list[Asked]) -> Tensor:
        return self._given(super().logits(asked)[:, self._given.token_ids])


def trees_of(kinds: list[str], bad: set[int], level: int, depth: int = DEPTH) -> list[TokenTree]:
    return grown(TableTrees(bad, level), kinds, depth)


def grown(run: Any, kinds: list[str], depth: int = DEPTH) -> list[TokenTree]:
    growths = [RankedGrowth(GrowthLimits(max_nodes=9, max_depth=depth)) for _ in kinds]
    drafts = []
    for place, kind in enumerate(kinds):
        tokens = [1, 2, 3 + place]
        held: Any = HeldSequence(RULES[kind], None, len(tokens), Sequence(tokens), len(tokens))
        drafts.append(OwnDraft.after(held, tokens, 1, DEPTH))
    while any(growth.frontier for growth in growths):
        grow_level(run, growths, drafts)
    return [growth.tree() for growth in growths]


@pytest.mark.parametrize("kinds", [["greedy", "coupled", "greedy"], ["coupled", "greedy", "coupled"]], ids=str)
@pytest.mark.parametrize("level", range(DEPTH))
def test_a_row_that_is_not_finite_ends_its_tree_and_no_other(kinds: list[str], level: int) -> None:
    whole = trees_of(kinds, set(), 0)
    found = trees_of(kinds, {1}, level)
    assert found[0] == whole[0] and found[2] == whole[2] and whole[0].tokens
    assert found[1] == trees_of(kinds, set(), 0, depth=level)[1]


def test_nothing_is_left_where_no_row_is_finite() -> None:
    assert [tree.tokens for tree in trees_of(["greedy", "coupled"], {0, 1}, 0)] == [(), ()]


@pytest.mark.parametrize("kinds", [["greedy", "greedy"], ["coupled", "greedy"], ["coupled", "coupled"]], ids=str)
def test_narrow_rows_grow_the_trees_of_wide_ones(kinds: list[str]) -> None:
    outputs = OutputTokens(torch.tensor([1, 2, 4, 5, 6, 8, 11, 12, 13, 15]), VOCABULARY)
    found = grown(TableTrees(set(), 0, outputs), kinds)
    assert found == grown(WideTrees(outputs), kinds)
    assert all(set(tree.tokens) <= set(outputs.token_ids.tolist()) and tree.tokens for tree in found)
    assert found != grown(TableTrees(set(), 0), kinds)
