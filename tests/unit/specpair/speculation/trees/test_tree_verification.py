from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.coupling import ChosenTokens, verify_choices, verify_coupled
from specpair.speculation.gumbel import choose, choose_and_look
from specpair.speculation.own_token import draw_own
from specpair.speculation.sparse_rows import sparsify
from specpair.speculation.trees.drawing import draw_siblings
from specpair.speculation.trees.drawn_tree import DrawnTree, Row
from specpair.speculation.trees.ranked_growth import Candidate, GrowthLimits, RankedGrowth
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from specpair.speculation.trees.tree_builder import TreeBuilder
from specpair.speculation.trees.tree_verification import (
    TreeVerdict,
    follow_choices,
    verify_coupled_trees,
    verify_trees,
)
from specpair.speculation.verification import verify
from tests.unit.specpair.speculation.test_verification import Proposal, as_block, padded, random_proposal, random_rows
from tests.unit.specpair.speculation.trees.test_token_tree import trees

VOCABULARY = 40
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))


def as_chain(one: Proposal) -> DrawnTree:
    rows = zip(one.draft.token_ids, one.draft.probabilities, strict=True)
    tree = TokenTree.chain(one.tokens.tolist())
    return DrawnTree.of(tree, [Row(ids[mass > 0], mass[mass > 0]) for ids, mass in rows])


@rules
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_a_chain_has_the_verdict_of_the_rules_for_chains(rule: Rule, lengths: list[int], seed: int) -> None:
    batch = [random_proposal(seed + b, length, rule) for b, length in enumerate(lengths)]
    target = torch.cat([one.target for one in batch]).numpy()
    keys = np.array([one.seed for one in batch]), np.arange(len(batch))
    accept = padded([one.accept_uniforms for one in batch], 0.0).numpy()
    expected = verify(target, as_block(batch, np.asarray), accept, *keys)
    own = [one.accept_uniforms.numpy() for one in batch]
    verdicts = verify_trees(target, [as_chain(one) for one in batch], rule, own, *keys)
    assert [len(verdict.path) for verdict in verdicts] == expected.accepted_counts.tolist()
    assert [verdict.next_token for verdict in verdicts] == expected.next_tokens.tolist()


def random_tree(seed: int, count: int, *, replaces: bool) -> tuple[Tensor, DrawnTree]:
    """A target's rows [N + 1, V] and a tree of `count` draws from sparse rows."""
    generator = torch.Generator().manual_seed(seed)
    rows = sparsify(random_rows(generator, count, VOCABULARY, 1.5), mass_cut=0.02)
    builder = TreeBuilder()
    while count > len(builder.draws):
        parent = int(torch.randint(ROOT, max(len(builder), 0), (), generator=generator)) if len(builder) else ROOT
        if parent in builder.parents:
            continue
        number = builder.add_row(Row.of_counts(rows[len(builder.rows)], replaces=replaces))
        several = min(int(torch.randint(1, 4, (), generator=generator)), count - len(builder.draws))
        for token in draw_siblings(rows[number], several, seed, 0, len(builder.draws), replaces=replaces):
            builder.add_draw(parent, token, number)
    drawn = builder.drawn_tree()
    return random_rows(generator, len(drawn.tree) + 1, VOCABULARY, 1.5), drawn


@rules
@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=4), seed=st.integers(0, 2**31), replaces=st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_verdict_is_the_same_alone_beside_others_and_of_tensors(
    rule: Rule, counts: list[int], seed: int, replaces: bool
) -> None:
    batch = [random_tree(seed + b, count, replaces=replaces) for b, count in enumerate(counts)]
    noise = np.random.default_rng(seed)
    accept = [noise.random(len(drawn.tree)) for _, drawn in batch]
    seeds = noise.integers(2**62, size=len(batch))
    target, proposed = torch.cat([rows for rows, _ in batch]), [drawn for _, drawn in batch]
    together = verify_trees(target.numpy(), proposed, rule, accept, seeds, seeds)
    assert verify_trees(target, proposed, rule, accept, *[torch.from_numpy(seeds)] * 2) == together
    for b, (rows, drawn) in enumerate(batch):
        alone = verify_trees(rows.numpy(), [drawn], rule, accept[b : b + 1], seeds[b : b + 1], seeds[b : b + 1])
        assert alone == [together[b]]
        check_path(drawn.tree, together[b])
        assert rows[1 + (together[b].path or [ROOT])[-1], together[b].next_token] > 0


def check_path(tree: TokenTree, verdict: TreeVerdict) -> None:
    parents = [tree.parents[node] for node in verdict.path]
    assert parents == [ROOT, *verdict.path[:-1]][: len(parents)]


@rules
@given(count=st.integers(1, 9), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_a_greedy_target_is_followed_as_if_it_were_sampled(rule: Rule, count: int, seed: int) -> None:
    rows, drawn = random_tree(seed, count, replaces=True)
    choices = rows.argmax(-1)
    for node in range(len(drawn.tree)):  # half of the nodes are what the target would have written
        if seed >> node & 1:
            choices[drawn.tree.parents[node] + 1] = drawn.tree.tokens[node]
    one_hot = torch.nn.functional.one_hot(choices, VOCABULARY).double()
    noise = np.random.default_rng(seed)
    sampled = verify_trees(one_hot.numpy(), [drawn], rule, [noise.random(len(drawn.tree))], *[np.array([seed])] * 2)
    assert follow_choices([drawn.tree], choices.tolist()) == sampled


@rules
def test_a_residual_without_mass_gives_way_to_the_targets_row(rule: Rule) -> None:
    """Only rounding can reject a draw from the target's own distribution: here it gives its tokens a bit too much."""
    row = np.array([0.25, 0.75])
    drawn = DrawnTree.of(TokenTree.chain([0]), [Row(np.arange(2), row * (1 + 2.0**-52))])
    target = np.tile(row, (2, 1))
    for key in np.arange(20).reshape(-1, 1):
        verdicts = verify_trees(target, [drawn], rule, [np.array([1 - 2.0**-53])], key, key)
        assert verdicts == [TreeVerdict([], draw_own(row[None], key, key)[0])]


@given(st.lists(trees(), min_size=1, max_size=4), st.data())
def test_the_target_is_followed_as_far_as_the_tree_goes(proposed: list[TokenTree], data: st.DataObject) -> None:
    """Whatever it chooses off the path: from each row, each child and a token that is no child."""
    choices: list[int] = []
    ends: list[tuple[list[int], int]] = []
    for tree in proposed:
        own = data.draw(st.lists(st.integers(0, 9), min_size=len(tree) + 1, max_size=len(tree) + 1))
        end = data.draw(st.integers(ROOT, len(tree) - 1))
        for node in tree.path(end):
            own[tree.parents[node] + 1] = tree.tokens[node]
        own[end + 1] = 99
        ends.append((tree.path(end), 99))
        choices += own
    assert follow_choices(proposed, choices) == ends


@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_coupled_and_greedy_chains_have_the_bits_of_the_rules_for_chains(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    count = sum(lengths) + len(lengths)
    target = torch.randn(count, 4, generator=generator).softmax(-1)
    tokens = [torch.randint(4, (length,), generator=generator).tolist() for length in lengths]
    chains = [TokenTree.chain(own) for own in tokens]
    seeds, starts = range(seed, seed + len(lengths)), range(10, 10 + len(lengths))
    row_seeds = [own for own, length in zip(seeds, lengths, strict=True) for _ in range(length + 1)]
    positions = [start + row for start, length in zip(starts, lengths, strict=True) for row in range(length + 1)]
    same(verify_coupled_trees(target, chains, seeds, starts), verify_coupled(target, tokens, row_seeds, positions))
    choices = target.argmax(-1).tolist()
    same(follow_choices(chains, choices), verify_choices(choices, tokens))


def same(verdicts: Sequence[TreeVerdict], chains: Sequence[ChosenTokens]) -> None:
    assert [verdict.path for verdict in verdicts] == [list(range(chain.accepted_count)) for chain in chains]
    assert [verdict.next_token for verdict in verdicts] == [chain.next_token for chain in chains]


@pytest.mark.parametrize("seed", range(5))
def test_coupled_text_is_the_targets_own_with_trees_of_any_shape(seed: int) -> None:
    """Trees grown from a draft with the noise of the target, over a table of a target of one token's memory."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(12, 12, generator=generator) * 2
    target, draft = logits.softmax(-1), (logits + torch.randn(12, 12, generator=generator)).softmax(-1)
    alone = [0]
    for position in range(1, 40):
        alone.append(int(choose(target[alone[-1:]], [seed], [position])[0]))
    text, accepted = [0], 0
    while len(text) < 40:
        tree = grown(draft, text[-1], seed, len(text), max_nodes=1 + len(text) % 7)
        rows = target[[text[-1], *tree.tokens]]
        (verdict,) = verify_coupled_trees(rows, [tree], [seed], [len(text)])
        text += [*(tree.tokens[node] for node in verdict.path), verdict.next_token]
        accepted += len(verdict.path)
    assert text[:40] == alone
    assert accepted > 5


def grown(draft: Tensor, last: int, seed: int, length: int, max_nodes: int) -> TokenTree:
    growth = RankedGrowth(GrowthLimits(max_nodes=max_nodes, max_depth=3, max_children=3, max_frontier=4))
    depth = 0
    while growth.frontier:
        rows = draft[[last if node == ROOT else growth.token(node) for node in growth.frontier]]
        count = len(growth.frontier)
        _, outlooks = choose_and_look(rows, [seed] * count, [length + depth] * count, 3)
        growth.extend([list(map(Candidate, one.token_ids, one.shares)) for one in outlooks])
        depth += 1
    return growth.tree()
