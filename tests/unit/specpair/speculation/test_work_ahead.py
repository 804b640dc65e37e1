"""Branches drawn before the outcome is known change nothing: two rounds, enumerated, with negative controls."""

import pytest
import torch
from torch import Tensor

from specpair.options import Rule
from tests.unit.specpair.speculation.enumeration import Model, joint_distribution, random_model, total_variation
from tests.unit.specpair.speculation.two_rounds import Branches, text_distribution

EXACT = 1e-12
BIASED = 0.003
LENGTH = 2
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))


def pair(vocab_size: int, seed: int, zeros: float = 0.0) -> tuple[Model, Model]:
    generator = torch.Generator().manual_seed(seed)
    target = random_model(generator, vocab_size, 2 * LENGTH + 2, 1.0, zeros)
    return target, random_model(generator, vocab_size, 2 * LENGTH + 1, 1.0, zeros)


def bias(rule: Rule, branches: Branches, vocab_size: int = 2, seed: int = 3, zeros: float = 0.0) -> float:
    target, draft = pair(vocab_size, seed, zeros)
    text = text_distribution(target, draft, rule, LENGTH, branches)
    assert float(text.sum()) == pytest.approx(1.0, abs=EXACT)
    return total_variation(text, joint_distribution(target))


@rules
@pytest.mark.parametrize(("vocab_size", "seed", "zeros"), [(2, 3, 0.0), (2, 8, 0.4), (3, 5, 0.0), (3, 6, 0.3)])
def test_two_rounds_with_branches_write_what_the_target_would(
    rule: Rule, vocab_size: int, seed: int, zeros: float
) -> None:
    assert bias(rule, Branches(), vocab_size, seed, zeros) < EXACT


@pytest.mark.slow
@rules
def test_branches_drawn_by_the_noise_that_judges_the_round_before_are_biased(rule: Rule) -> None:
    assert bias(rule, Branches(shares_acceptance=True)) > BIASED


@rules
def test_a_branch_drawn_again_after_it_was_seen_is_biased(rule: Rule) -> None:
    def is_unlikely(blocks: Tensor, shares: Tensor) -> Tensor:
        return shares.prod(1) < 0.3

    assert bias(rule, Branches(is_redrawn=is_unlikely)) > BIASED


@rules
def test_a_branch_drawn_again_unseen_is_exact(rule: Rule) -> None:
    """As after a miss, whichever noise it takes."""
    assert bias(rule, Branches(is_redrawn=lambda blocks, shares: torch.ones(len(blocks)))) < EXACT


@rules
def test_a_length_that_depends_on_a_dropped_draw_is_biased(rule: Rule) -> None:
    assert bias(rule, Branches(length=lambda shares: (shares >= 0.4).long().cumprod(1).sum(1))) > BIASED


@rules
def test_a_length_that_depends_on_draws_that_are_sent_is_exact(rule: Rule) -> None:
    assert bias(rule, Branches(length=lambda shares: 1 + (shares[:, 0] >= 0.4).long())) < EXACT
