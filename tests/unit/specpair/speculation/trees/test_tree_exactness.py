"""Both rules for drawn trees leave the target's distribution as it is: exact enumeration on tiny vocabularies."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from specpair.options import Rule
from specpair.speculation.trees.drawn_tree import DrawnTree, Row
from specpair.speculation.trees.planned_growth import PlannedGrowth
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from tests.decoded_merging import merge_drawn
from tests.unit.specpair.speculation.enumeration import Model, enumerate_round, random_model
from tests.unit.specpair.speculation.trees.tree_enumeration import (
    Choose,
    Shape,
    distance,
    draw_tree,
    emitted,
    explore,
    ordered_shapes,
    rows_of,
)

EXACT = 1e-12
RULES = (Rule.TOKEN, Rule.BLOCK)
rules = pytest.mark.parametrize("rule", RULES)


def random_pair(seed: int, vocab_size: int, depth: int, zeros: float = 0.2) -> tuple[Model, Model]:
    """A target of depth + 1 levels and a draft of `depth`."""
    generator = torch.Generator().manual_seed(seed)
    target = random_model(generator, vocab_size, depth + 1, 1.0, zeros)
    return target, random_model(generator, vocab_size, depth, 1.0, zeros)


def depth_of(shape: Shape) -> int:
    depths: list[int] = []
    for parent in shape:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return max(depths)


def check(shape: Shape, vocab_size: int, *, replaces: bool) -> None:
    """Under both rules, for all tokens that can be drawn."""
    target, draft = random_pair(hash(shape) % 2**31, vocab_size, depth_of(shape))
    trees = list(explore(lambda choose: draw_tree(shape, draft, choose, replaces=replaces)))
    assert sum(probability for probability, _ in trees) == pytest.approx(1.0, abs=EXACT)
    for rule in RULES:
        assert distance(emitted(target, trees, rule), target) < EXACT, (rule, shape)


def test_all_ordered_trees_are_there() -> None:
    assert [len(set(ordered_shapes(count))) for count in range(1, 6)] == [1, 2, 5, 14, 42]  # Catalan


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("vocab_size", [3, 4])
def test_every_tree_of_so_many_draws_emits_what_the_target_would(vocab_size: int, count: int, replaces: bool) -> None:
    for shape in ordered_shapes(count):
        check(shape, vocab_size, replaces=replaces)


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("shape", ordered_shapes(5), ids=str)
@pytest.mark.parametrize("vocab_size", [3, 4])
def test_every_tree_of_five_draws_emits_what_the_target_would(vocab_size: int, shape: Shape, replaces: bool) -> None:
    check(shape, vocab_size, replaces=replaces)


@rules
@pytest.mark.parametrize("spread", [0.3, 3.0, 10.0])
@pytest.mark.parametrize("zeros", [0.0, 0.6])
def test_near_and_far_pairs(rule: Rule, spread: float, zeros: float) -> None:
    generator = torch.Generator().manual_seed(3)
    shape = (ROOT, 0, 0, ROOT)
    for _ in range(3):
        target, draft = (random_model(generator, 3, depth, spread, zeros) for depth in (3, 2))
        for replaces in (True, False):
            trees = list(explore(lambda choose, d=draft, r=replaces: draw_tree(shape, d, choose, replaces=r)))
            assert distance(emitted(target, trees, rule), target) < EXACT


@rules
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_chain_is_judged_as_by_the_rules_for_chains(rule: Rule, length: int) -> None:
    target, draft = random_pair(length, 3, length)
    trees = list(explore(lambda choose: draw_tree(tuple(range(ROOT, length - 1)), draft, choose)))
    assert emitted(target, trees, rule).mean_accepted == pytest.approx(
        enumerate_round(target, draft, rule).mean_accepted, abs=EXACT
    )


def test_the_block_rule_accepts_at_least_as_many_as_the_token_rule() -> None:
    for shape in ordered_shapes(4):
        target, draft = random_pair(7, 3, depth_of(shape))
        trees = list(explore(lambda choose, s=shape, d=draft: draw_tree(s, d, choose)))
        token, block = (emitted(target, trees, rule).mean_accepted for rule in RULES)
        assert block >= token - EXACT


@rules
def test_another_sibling_accepts_more_and_one_without_replacement_still_more(rule: Rule) -> None:
    target, draft = random_pair(2, 4, 1, zeros=0.0)
    means = [
        emitted(
            target, list(explore(lambda choose, s=shape, r=replaces: draw_tree(s, draft, choose, replaces=r))), rule
        )
        for shape, replaces in (((ROOT,), True), ((ROOT, ROOT), True), ((ROOT, ROOT), False))
    ]
    assert all(after.mean_accepted > before.mean_accepted + 0.01 for before, after in pairwise(means))


@rules
@pytest.mark.parametrize("max_nodes", [3, 6])
def test_chains_of_several_drafts_merged(rule: Rule, max_nodes: int) -> None:
    """SpecInfer: each draft draws a chain from its own distributions. Where the tree is full, the rest is left out."""
    generator = torch.Generator().manual_seed(11)
    target = random_model(generator, 3, 3, 1.0, 0.2)
    drafts = [random_model(generator, 3, 2, 1.0, 0.2) for _ in range(3)]

    def draw_all(choose: Choose) -> DrawnTree:
        return merge_drawn([draw_tree((ROOT, 0), draft, choose) for draft in drafts], max_nodes)

    assert distance(emitted(target, list(explore(draw_all)), rule), target) < EXACT


@rules
def test_a_draft_that_is_certain_beside_one_that_draws(rule: Rule) -> None:
    """An n-gram's token is a draw from a row with all mass on it."""
    target, draft = random_pair(12, 3, 2)
    certain = DrawnTree.of(TokenTree.chain((1, 1)), [Row.one_hot(1), Row.one_hot(1)])

    def draw_all(choose: Choose) -> DrawnTree:
        return merge_drawn([draw_tree((ROOT, ROOT, 1), draft, choose, replaces=False), certain], 9)

    assert distance(emitted(target, list(explore(draw_all)), rule), target) < EXACT


@rules
@pytest.mark.parametrize("replaces", [True, False])
def test_a_tree_whose_shape_follows_from_its_own_tokens(rule: Rule, replaces: bool) -> None:
    """The growth plans each level by the rows of tokens that are kept, also those of other branches."""
    target, draft = random_pair(13, 3, 3)
    trees = list(explore(lambda choose: grow(draft, choose, replaces=replaces)))
    assert len({drawn.tree.parents for _, drawn in trees}) > 2
    assert distance(emitted(target, trees, rule), target) < EXACT


def grow(draft: Model, choose: Choose, *, replaces: bool) -> DrawnTree:
    """By a growth that takes a row's largest probability for the chance of a first draw, and a token's own once it is
    drawn."""
    growth = PlannedGrowth(GrowthLimits(max_nodes=4, max_depth=3), (0.6, 0.3, 0.1))
    conditional = rows_of(draft)
    prefixes: dict[int, list[int]] = {ROOT: []}
    while growth.frontier:
        for node in growth.frontier:
            if node != ROOT:
                prefixes[node] = [*prefixes[growth.parent(node)], growth.token(node)]
        rows = [conditional(prefixes[node]) for node in growth.frontier]
        counts = growth.counts([(float(row.max()), 1 - float(row.max())) for row in rows])
        drawn = [draw_some(row, count, choose, replaces=replaces) for row, count in zip(rows, counts, strict=True)]
        chances = [row[tokens].tolist() for row, tokens in zip(rows, drawn, strict=True)]
        growth.extend([Row(np.arange(len(row)), row, replaces) for row in rows], drawn, chances)
    return growth.tree()


def draw_some(row: np.ndarray, count: int, choose: Choose, *, replaces: bool) -> list[int]:
    tokens: list[int] = []
    left = row.copy()
    while len(tokens) < count and left.any():
        tokens.append(choose((left / left.sum()).tolist()))
        if not replaces:
            left[tokens[-1]] = 0.0
    return tokens
