"""Ways of getting trees wrong: each must be seen to change what the target would write, beside the right way."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from specpair.options import Rule
from specpair.speculation.trees.drawn_tree import DrawnTree
from specpair.speculation.trees.siblings import Residual, SiblingDraw
from specpair.speculation.trees.token_tree import ROOT
from specpair.speculation.trees.tree_builder import TreeBuilder
from tests.unit.specpair.speculation.enumeration import Model, joint_distribution, random_model, total_variation
from tests.unit.specpair.speculation.trees.tree_enumeration import (
    Choose,
    draw_tree,
    emitted,
    explore,
)

EXACT = 1e-12
SEEN = 0.01
"""A total variation that is no rounding."""
SHAPE = (ROOT, 0, ROOT, 2, 2)
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))


def pair() -> tuple[Model, Model]:
    """A target of three levels and a draft of two, over three tokens."""
    generator = torch.Generator().manual_seed(5)
    return random_model(generator, 3, 3, 1.0, 0.0), random_model(generator, 3, 2, 1.0, 0.0)


def bias(rule: Rule, make: Callable[[Model, Choose], DrawnTree]) -> float:
    target, draft = pair()
    joint = emitted(target, list(explore(lambda choose: make(draft, choose))), rule).joint
    return total_variation(torch.from_numpy(joint), joint_distribution(target))


@rules
@pytest.mark.parametrize("replaces", [True, False])
def test_drawn_children_are_exact(rule: Rule, replaces: bool) -> None:
    assert bias(rule, lambda draft, choose: draw_tree(SHAPE, draft, choose, replaces=replaces)) < EXACT


@rules
@pytest.mark.parametrize("replaces", [True, False])
def test_the_likeliest_children_judged_as_if_they_were_drawn_are_biased(rule: Rule, replaces: bool) -> None:
    """min(1, p / q) on children that were not sampled: the top of q."""

    def make(draft: Model, _: Choose) -> DrawnTree:
        return draw_tree(SHAPE, draft, lambda left: int(np.argmax(left)), replaces=False)

    assert bias(rule, lambda draft, choose: judged_as(make(draft, choose), replaces=replaces)) > SEEN


@rules
def test_siblings_without_replacement_judged_as_independent_are_biased(rule: Rule) -> None:
    def make(draft: Model, choose: Choose) -> DrawnTree:
        return judged_as(draw_tree(SHAPE, draft, choose, replaces=False), replaces=True)

    assert bias(rule, make) > SEEN


@rules
def test_siblings_drawn_by_the_same_number_are_biased(rule: Rule) -> None:
    """As two drafts do that draw for one tree with the noise of an only one: here both have the same distributions."""

    def make(draft: Model, choose: Choose) -> DrawnTree:
        first = draw_tree((ROOT,), draft, choose)
        return replace(first, draws=first.draws * 2)

    assert bias(rule, make) > SEEN


@rules
def test_a_drawn_node_dropped_for_its_low_probability_is_biased(rule: Rule) -> None:
    """Pruned by what was drawn, as a tree of the likeliest nodes is."""
    assert bias(rule, lambda draft, choose: pruned(draw_tree((ROOT, 0), draft, choose), 0.3)) > SEEN


@rules
def test_siblings_judged_in_an_order_that_their_probabilities_decide_are_biased(rule: Rule) -> None:
    def make(draft: Model, choose: Choose) -> DrawnTree:
        drawn = draw_tree((ROOT, ROOT), draft, choose)
        likely = sorted(drawn.draws, key=lambda draw: -drawn.rows[0].probability(drawn.tree.tokens[draw.node]))
        return replace(drawn, draws=tuple(likely))

    assert bias(rule, make) > SEEN


@rules
def test_a_residual_that_forgets_a_rejected_sibling_is_biased(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(residual: Residual, _: SiblingDraw) -> Residual:
        return residual

    monkeypatch.setattr(Residual, "without", unchanged)
    assert bias(rule, lambda draft, choose: draw_tree(SHAPE, draft, choose)) > SEEN


def judged_as(drawn: DrawnTree, *, replaces: bool) -> DrawnTree:
    return replace(drawn, rows=tuple(row._replace(replaces=replaces) for row in drawn.rows))


def pruned(drawn: DrawnTree, least: float) -> DrawnTree:
    """The tree without the nodes that their own row gives less than `least`, and without those below them."""
    builder, nodes = TreeBuilder(), {ROOT: ROOT}
    for node, row in drawn.draws:
        token, parent = drawn.tree.tokens[node], drawn.tree.parents[node]
        if parent in nodes and drawn.rows[row].probability(token) >= least:
            nodes[node] = builder.add_draw(nodes[parent], token, builder.add_row(drawn.rows[row]))
    return builder.drawn_tree()
