"""Ways of getting it wrong that others have shipped: each must be seen to change what the target would write.

If one of these passed for exact, the tests of exactness could not be trusted. Each stands beside the right way,
measured by the same means.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.draft_rows import DraftRows, draw
from specpair.speculation.own_token import draw_own
from specpair.speculation.randomness import BITS, Domain, draw_bits
from specpair.speculation.verification import Block, Thresholds, packed_rows, verify
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
SAMPLES = 20_000
LENGTH = 4
"""Tokens of a simulated text."""
BLOCK = 3
"""Tokens of a simulated proposal."""


def pair() -> tuple[Model, Model]:
    """A target of four levels and a draft of three, over three tokens."""
    generator = torch.Generator().manual_seed(5)
    return random_model(generator, 3, 4, 1.0, 0.0), random_model(generator, 3, 3, 1.0, 0.0)


def bias(rule: Rule, **variant: object) -> float:
    target, draft = pair()
    outcome = enumerate_round(target, draft, rule, **variant)  # pyright: ignore[reportArgumentType]
    return total_variation(outcome.joint, joint_distribution(target))


@rules
def test_the_rules_themselves_are_exact(rule):
    assert bias(rule) < EXACT


@rules
def test_always_accepting_is_biased(rule):
    assert bias(rule, spoil=lambda right: Thresholds(torch.ones_like(right.acceptance), right.scales)) > 0.1


def test_a_block_residual_without_its_scale_is_biased():
    """max(p - q, 0) after n accepted tokens instead of max(P_n p - q, 0)."""
    assert bias(Rule.BLOCK, spoil=lambda right: Thresholds(right.acceptance, torch.ones_like(right.scales))) > 0.01


@rules
def test_dropping_a_drawn_token_is_biased(rule):
    """Ending the block before a token because the draft gave it little probability."""
    _, draft = pair()
    assert bias(rule, lengths=_lengths_until_improbable(draft, 0.3)) > 0.01


@rules
def test_a_reduced_vocabulary_whose_distribution_is_not_renormalised_is_biased(rule):
    """Tokens drawn from those that the draft gives, but sent with a distribution in which these have less than all of
    the mass: what they have among all tokens, or the whole distribution of the draft."""
    target, whole = pair()
    left = [level * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64) for level in whole]
    drawn = [level / level.sum(-1, keepdim=True) for level in left]
    wanted = joint_distribution(target)
    assert total_variation(enumerate_round(target, drawn, rule).joint, wanted) < EXACT
    for sent in (left, whole):
        assert total_variation(enumerate_round(target, drawn, rule, sent=sent).joint, wanted) > 0.01


def _lengths_until_improbable(draft: Model, least: float) -> Tensor:
    vocab_size, longest = draft[0].shape[1], len(draft)
    tokens = all_blocks(vocab_size, longest)
    kept, prefixes = torch.ones(len(tokens), dtype=torch.int64), torch.zeros(len(tokens), dtype=torch.int64)
    lengths = torch.zeros_like(kept)
    for level, drawn in zip(draft, tokens.T, strict=True):
        kept = kept * (level[prefixes, drawn] >= least)
        lengths += kept
        prefixes = prefixes * vocab_size + drawn
    return lengths


TARGET = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
NEAR_DRAFT = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
FAR_DRAFT = torch.tensor([[0.98, 0.02]], dtype=torch.float64)


def write_texts(
    rule: Rule,
    draft: Tensor,
    *,
    shared_noise: bool = False,
    keyed_by_position: bool = False,
    drafts_by_own: bool = False,
) -> Tensor:
    """[SAMPLES, LENGTH] tokens of a pair without memory, written by rounds of blocks of BLOCK with the real noise."""
    texts = torch.zeros(SAMPLES, LENGTH + 2 * BLOCK + 1, dtype=torch.int64)
    lengths = torch.zeros(SAMPLES, dtype=torch.int64)
    for step in range(LENGTH):
        steps = torch.full_like(lengths, step)
        accept = noise(Domain.ACCEPT, lengths if keyed_by_position else steps, by_position=keyed_by_position)
        drafting = accept if shared_noise else noise(Domain.DRAFT, steps, by_position=False)
        tokens = torch.stack([draw(draft.expand(SAMPLES, -1), column) for column in drafting.T], 1)
        if drafts_by_own:
            own = draw_own(draft.expand(SAMPLES, -1).numpy(), np.arange(SAMPLES), steps.numpy())
            tokens[:, 0] = torch.from_numpy(own)
        rows = draft.expand(SAMPLES, BLOCK, 2).numpy()
        token_ids = np.broadcast_to(np.arange(2), rows.shape)
        block = Block(
            tokens.numpy(),
            np.full(SAMPLES, BLOCK),
            DraftRows.of(token_ids, rows, tokens.numpy()),
            packed_rows([BLOCK] * SAMPLES, BLOCK),
            rule,
        )
        target = np.tile(TARGET.numpy(), (SAMPLES * (BLOCK + 1), 1))
        verdicts = verify(target, block, accept.numpy(), np.arange(SAMPLES), steps.numpy())
        counts, following = map(torch.from_numpy, verdicts)
        commit(texts, lengths, tokens, counts, following)
    return texts[:, :LENGTH]


def noise(domain: Domain, steps: Tensor, *, by_position: bool) -> Tensor:
    """[SAMPLES, BLOCK]: offset i counts within the block, or moves the key on to the next position."""
    columns = [draws(domain, steps + i, 0) if by_position else draws(domain, steps, i) for i in range(BLOCK)]
    return torch.stack(columns, 1)


def draws(domain: Domain, steps: Tensor, offset: int) -> Tensor:
    """Uniforms [SAMPLES], each sample with a seed of its own."""
    bits = [draw_bits(seed, domain, step, offset) for seed, step in enumerate(steps.tolist())]
    return torch.tensor(bits, dtype=torch.float64) * 2.0**-BITS


def commit(texts: Tensor, lengths: Tensor, tokens: Tensor, counts: Tensor, following: Tensor) -> None:
    """Appends the accepted tokens and the next one, in place; texts that are long enough stay as they are."""
    emitted = torch.cat((tokens, following[:, None]), 1).scatter(1, counts[:, None], following[:, None])
    growing = lengths < LENGTH
    for i in range(emitted.shape[1]):
        chosen = growing & (counts >= i)
        texts[chosen, lengths[chosen] + i] = emitted[chosen, i]
    lengths += torch.where(growing, counts + 1, 0)


def distances(rule: Rule, draft: Tensor, **variant: bool) -> tuple[float, float]:
    """Total variation of the texts from the target's, and its noise floor: the most that true samples show."""
    expected = joint_distribution([TARGET.expand(2**level, 2) for level in range(LENGTH)]).numpy()
    numbers = write_texts(rule, draft, **variant).numpy() @ (2 ** np.arange(LENGTH - 1, -1, -1))
    observed = np.bincount(numbers, minlength=2**LENGTH) / SAMPLES
    own = np.random.default_rng(5).multinomial(SAMPLES, expected, size=100) / SAMPLES
    return float(np.abs(observed - expected).sum() / 2), float(np.abs(own - expected).sum(-1).max() / 2)


@pytest.mark.few_cases(2)
@rules
@pytest.mark.parametrize("draft", [NEAR_DRAFT, FAR_DRAFT], ids=["near", "far"])
def test_keyed_by_step_texts_are_the_targets(rule, draft):
    distance, floor = distances(rule, draft)
    assert distance < floor


@pytest.mark.slow
@rules
def test_the_same_noise_for_drafting_and_acceptance_is_biased(rule):
    distance, floor = distances(rule, NEAR_DRAFT, shared_noise=True)
    assert distance > 0.15 > 5 * floor


@pytest.mark.slow
@rules
def test_a_draft_that_draws_by_the_noise_of_the_targets_own_token_is_biased(rule):
    """It may look at that noise to guess which token the target adds, and must not propose by it."""
    distance, floor = distances(rule, NEAR_DRAFT, drafts_by_own=True)
    assert distance > 3 * floor


def test_the_block_rule_keyed_by_position_is_biased():
    distance, floor = distances(Rule.BLOCK, FAR_DRAFT, keyed_by_position=True)
    assert distance > 0.08 > 4 * floor


@pytest.mark.slow
def test_the_token_rule_keyed_by_position_is_not():
    """It never looks at a uniform beyond the first rejection, so none is used twice."""
    distance, floor = distances(Rule.TOKEN, FAR_DRAFT, keyed_by_position=True)
    assert distance < floor
