"""Structured outputs: a round emits what the masked target would, whether or not the draft knows the mask.

And the trap: to end a block at the first token that does not fit, instead of having it rejected, is biased.
"""

import pytest
import torch
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.masking import mask_rows
from tests.unit.specpair.speculation.enumeration import (
    Model,
    all_blocks,
    enumerate_round,
    joint_distribution,
    random_model,
    total_variation,
)

rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))
EXACT = 1e-12
VOCABULARY, LENGTH = 3, 2


def masks(seed: int, depth: int) -> list[Tensor]:
    """[V^i, V] bool for each prefix: which tokens may come; always one at least."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for level in range(depth):
        shape = (VOCABULARY**level, VOCABULARY)
        allowed = torch.rand(shape, generator=generator) < 0.6
        spared = torch.randint(VOCABULARY, (shape[0], 1), generator=generator)
        found.append(allowed.scatter(1, spared, torch.ones(spared.shape, dtype=torch.bool)))
    return found


def masked(model: Model, allowed: list[Tensor]) -> Model:
    """The model under the condition that each token fits."""
    levels = [level * mask for level, mask in zip(model, allowed, strict=False)]
    return [level / level.sum(-1, keepdim=True) for level in levels]


def pair(seed: int) -> tuple[Model, Model, list[Tensor]]:
    """A target of LENGTH + 1 levels, a draft of LENGTH, and masks."""
    generator = torch.Generator().manual_seed(seed)
    target = random_model(generator, VOCABULARY, LENGTH + 1, 1.0, 0.0)
    return target, random_model(generator, VOCABULARY, LENGTH, 1.0, 0.0), masks(seed, LENGTH + 1)


def lengths_until_forbidden(allowed: list[Tensor]) -> Tensor:
    """[V^LENGTH]: for each block, how many of its tokens come before the first that does not fit."""
    tokens = all_blocks(VOCABULARY, LENGTH)
    kept, prefixes = torch.ones(len(tokens), dtype=torch.int64), torch.zeros(len(tokens), dtype=torch.int64)
    lengths = torch.zeros_like(kept)
    for mask, drawn in zip(allowed, tokens.T, strict=False):
        kept = kept * mask[prefixes, drawn]
        lengths += kept
        prefixes = prefixes * VOCABULARY + drawn
    return lengths


@rules
@pytest.mark.parametrize("seed", range(8))
def test_a_round_emits_what_the_masked_target_would(rule: Rule, seed: int) -> None:
    target, draft, allowed = pair(seed)
    wanted = masked(target, allowed)
    without, with_masks = (enumerate_round(wanted, one, rule) for one in (draft, masked(draft, allowed)))
    for outcome in (without, with_masks):
        assert total_variation(outcome.joint, joint_distribution(wanted)) < EXACT


@rules
def test_a_draft_that_knows_the_mask_is_accepted_more_often(rule: Rule) -> None:
    gains = []
    for seed in range(20):
        target, draft, allowed = pair(seed)
        wanted = masked(target, allowed)
        without, with_masks = (enumerate_round(wanted, one, rule) for one in (draft, masked(draft, allowed)))
        gains.append(with_masks.mean_accepted - without.mean_accepted)
    assert sum(gains) / len(gains) > 0.1


@rules
def test_cutting_a_block_at_a_token_that_does_not_fit_is_biased(rule: Rule) -> None:
    """Negative control: the token was drawn, so leaving it out makes those that are left too likely."""
    target, draft, allowed = pair(1)
    wanted = masked(target, allowed)
    outcome = enumerate_round(wanted, draft, rule, lengths=lengths_until_forbidden(allowed))
    assert total_variation(outcome.joint, joint_distribution(wanted)) > 0.01


def test_the_bias_of_cutting_in_numbers() -> None:
    """p = (.5, .3, .2) after the mask; the draft gives the forbidden token .3 of its mass."""
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    q = torch.tensor([0.2, 0.4, 0.1, 0.3], dtype=torch.float64)
    target: Model = [p[None], p.expand(4, 4)]
    right = enumerate_round(target, [q[None]], Rule.TOKEN).joint.view(4, 4).sum(-1)
    cut = enumerate_round(target, [q[None]], Rule.TOKEN, lengths=torch.tensor([1, 1, 1, 0])).joint.view(4, 4).sum(-1)
    assert right.tolist() == pytest.approx([0.5, 0.3, 0.2, 0.0])
    assert cut.tolist() == pytest.approx([0.425, 0.390, 0.185, 0.0], abs=1e-3)


def test_masks_are_read_bit_by_bit() -> None:
    rows = torch.zeros(3, 40)
    masks = [bytes([0b101, 0, 0, 0b10000000]).ljust(8, b"\0"), None, bytes([0, 0, 0, 0, 1, 0, 0, 0])]
    mask_rows(rows, masks)
    assert [token for token in range(40) if rows[0, token] == 0.0] == [0, 2, 31]
    assert rows[1].isfinite().all()
    assert [token for token in range(40) if rows[2, token] == 0.0] == [32]
