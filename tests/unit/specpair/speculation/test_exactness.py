"""Both rules leave the target's distribution as it is: exact enumeration on tiny vocabularies."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule
from tests.unit.specpair.speculation.enumeration import (
    Model,
    all_blocks,
    enumerate_round,
    joint_distribution,
    random_model,
    total_variation,
)

EXACT = 1e-12
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))


def random_pair(seed: int, vocab_size: int, length: int, spread: float, zeros: float) -> tuple[Model, Model]:
    """A target of length + 1 levels and a draft of `length`."""
    generator = torch.Generator().manual_seed(seed)
    target = random_model(generator, vocab_size, length + 1, spread, zeros)
    return target, random_model(generator, vocab_size, length, spread, zeros)


def row(*probabilities: float) -> Tensor:
    """[1, V]."""
    return torch.tensor([probabilities], dtype=torch.float64)


pairs = st.builds(
    random_pair,
    seed=st.integers(0, 2**31),
    vocab_size=st.integers(2, 4),
    length=st.integers(1, 3),
    spread=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    zeros=st.sampled_from([0.0, 0.3, 0.7]),
)


@rules
@settings(max_examples=50)
@given(pair=pairs)
def test_a_round_emits_what_the_target_would(rule, pair):
    target, draft = pair
    outcome = enumerate_round(target, draft, rule)
    assert (outcome.joint - joint_distribution(target)).abs().max() < EXACT


@settings(max_examples=30)
@given(pair=pairs)
def test_the_block_rule_accepts_at_least_as_many_as_the_token_rule(pair):
    target, draft = pair
    token, block = (enumerate_round(target, draft, rule) for rule in (Rule.TOKEN, Rule.BLOCK))
    assert block.mean_accepted >= token.mean_accepted - EXACT
    at_least = block.emission.flip(0).cumsum(0), token.emission.flip(0).cumsum(0)
    assert (at_least[0] >= at_least[1] - EXACT).all()  # for every count, not only on average


def test_the_block_rule_accepts_more_where_the_token_rule_wastes():
    """Sun et al. 2024, section 2: p = (1/3, 2/3) and q = (2/3, 1/3) at both positions gives 10/9 and 11/9."""
    p, q = row(1 / 3, 2 / 3), row(2 / 3, 1 / 3)
    target, draft = [p, p.expand(2, 2), p.expand(4, 2)], [q, q.expand(2, 2)]
    assert enumerate_round(target, draft, Rule.TOKEN).mean_accepted == pytest.approx(10 / 9, abs=EXACT)
    assert enumerate_round(target, draft, Rule.BLOCK).mean_accepted == pytest.approx(11 / 9, abs=EXACT)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_token_rule_accepts_as_the_theory_says(length):
    """Leviathan et al., Theorem 3.5 and Equation (1): with the same p and q everywhere, alpha = sum min(p, q)."""
    p, q = row(0.5, 0.3, 0.2), row(0.2, 0.2, 0.6)
    alpha = float(torch.minimum(p, q).sum())
    target = [p.expand(3**level, 3) for level in range(length + 1)]
    draft = [q.expand(3**level, 3) for level in range(length)]
    expected = (1 - alpha ** (length + 1)) / (1 - alpha) - 1
    assert enumerate_round(target, draft, Rule.TOKEN).mean_accepted == pytest.approx(expected, abs=EXACT)


@rules
def test_a_draft_like_the_target_is_accepted_whole(rule):
    target, _ = random_pair(1, 4, 3, 1.0, 0.2)
    outcome = enumerate_round(target, target[:3], rule)
    assert outcome.mean_accepted == pytest.approx(3, abs=EXACT)
    assert (outcome.joint - joint_distribution(target)).abs().max() < EXACT


@rules
def test_a_draft_of_other_tokens_is_rejected_whole(rule):
    left, right = row(0.4, 0.6, 0.0, 0.0), row(0.0, 0.0, 0.7, 0.3)
    target, draft = [left, left.expand(4, 4), left.expand(16, 4)], [right, right.expand(4, 4)]
    outcome = enumerate_round(target, draft, rule)
    assert outcome.mean_accepted == 0.0
    assert (outcome.joint - joint_distribution(target)).abs().max() < EXACT


@rules
def test_a_greedy_target_writes_its_own_text(rule):
    _, draft = random_pair(4, 3, 2, 1.0, 0.0)
    target: list[Tensor] = []
    for level, chosen in enumerate(([2], [0, 1, 1], [0, 2, 1, 0, 1, 2, 2, 1, 0])):
        target.append(torch.eye(3, dtype=torch.float64)[chosen])
        assert target[-1].shape == (3**level, 3)
    outcome = enumerate_round(target, draft, rule)
    assert outcome.joint.nonzero().tolist() == [[2 * 9 + 1 * 3 + 1]]  # 2, then 1, then what follows 2, 1
    first = draft[0][0, 2]
    assert outcome.mean_accepted == pytest.approx(float(first + first * draft[1][2, 1]), abs=EXACT)


@rules
@settings(max_examples=25)
@given(pair=pairs)
def test_stopping_before_a_draw_is_exact(rule, pair):
    """A block may end where the draft is unsure: that depends on the tokens kept alone."""
    target, draft = pair
    outcome = enumerate_round(target, draft, rule, lengths=_lengths_by_certainty(draft, 0.6))
    assert total_variation(outcome.joint, joint_distribution(target)) < EXACT


def _lengths_by_certainty(draft: Model, least: float) -> Tensor:
    """Tokens of each block [V^K] before the first whose row has no entry of at least `least`."""
    vocab_size, longest = draft[0].shape[1], len(draft)
    tokens = all_blocks(vocab_size, longest)
    sure = torch.ones(len(tokens), dtype=torch.int64)
    lengths = torch.zeros_like(sure)
    prefixes = torch.zeros_like(sure)
    for level, drawn in zip(draft, tokens.T, strict=True):
        sure = sure * (level[prefixes].amax(-1) >= least)
        lengths += sure
        prefixes = prefixes * vocab_size + drawn
    return lengths
