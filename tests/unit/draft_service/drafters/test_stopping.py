"""A proposal that stops behind tokens that its drafter believes in too little leaves every rule exact.

Whether to stop is decided on tokens that are kept, so it is a stopping time of the block (docs/exactness.md, rule 8):
token and block rule are enumerated, the coupled rule is compared with the target alone. The control that drops the
token which was found wanting is not exact, and is seen.
"""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule, SamplingOptions
from specpair.speculation.coupling import verify_coupled
from specpair.speculation.gumbel import choose
from specpair.speculation.predicted_proposal import ProposalTask, draw_proposal
from specpair.speculation.prediction import Prediction
from tests.unit.specpair.speculation.enumeration import (
    Model,
    all_blocks,
    enumerate_round,
    joint_distribution,
    random_model,
    total_variation,
)

EXACT = 1e-12
VOCABULARY = 3
DEPTH = 3


def make_models(seed: int, spread: float, zeros: float) -> tuple[Model, Model]:
    """A target, and a draft of one token less."""
    generator = torch.Generator().manual_seed(seed)
    target = random_model(generator, VOCABULARY, DEPTH + 1, spread, zeros)
    return target, random_model(generator, VOCABULARY, DEPTH, spread, zeros)


models = st.builds(
    make_models, st.integers(0, 2**31), spread=st.sampled_from([0.3, 1.0, 3.0]), zeros=st.sampled_from([0.0, 0.4])
)
thresholds = st.sampled_from([0.05, 0.2, 0.4, 0.6, 1.0])


def row_behind(model: Model, prefix: list[int]) -> Tensor:
    """[V]: what the model says behind some tokens."""
    number = 0
    for token in prefix:
        number = number * VOCABULARY + token
    return model[len(prefix)][number]


def stopping_length(draft: Model, tokens: list[int], least: float) -> int:
    """Tokens up to the first behind which they have together less than `least`, that one included."""
    confidence = 1.0
    for i, token in enumerate(tokens):
        confidence *= float(row_behind(draft, tokens[:i])[token])
        if confidence < least:
            return i + 1
    return len(tokens)


def all_lengths(draft: Model, least: float, dropped: int = 0) -> Tensor:
    """[V^DEPTH]: of each block; a control drops tokens from the end of those that stopped early."""
    lengths = [stopping_length(draft, block, least) for block in all_blocks(VOCABULARY, DEPTH).tolist()]
    return torch.tensor([length - dropped if length < DEPTH else length for length in lengths])


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@settings(max_examples=40)
@given(pair=models, least=thresholds)
def test_a_round_that_stops_early_emits_what_the_target_would(rule: Rule, pair: tuple[Model, Model], least: float):
    target, draft = pair
    outcome = enumerate_round(target, draft, rule, lengths=all_lengths(draft, least))
    assert total_variation(outcome.joint, joint_distribution(target)) < EXACT


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_dropping_the_token_that_was_found_wanting_is_seen(rule: Rule) -> None:
    target, draft = make_models(seed=1, spread=1.0, zeros=0.0)
    outcome = enumerate_round(target, draft, rule, lengths=all_lengths(draft, 0.3, dropped=1))
    assert total_variation(outcome.joint, joint_distribution(target)) > 0.01


class Tree:
    """A predictor that says what a model says."""

    def __init__(self, model: Model):
        self._model = model

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        row = row_behind(self._model, drafted)
        tokens = [token for token in range(VOCABULARY) if row[token] > 0]
        yield Prediction(tokens, row[tokens].tolist(), 1.0)


def a_task(rule: Rule, seed: int, least: float, prefix: int = 0) -> ProposalTask:
    return ProposalTask(SamplingOptions(seed=seed), rule, VOCABULARY, 1, 1 + prefix, 4, DEPTH - prefix, least)


@pytest.mark.parametrize("rule", list(Rule))
@settings(max_examples=100)
@given(pair=models, least=thresholds, seed=st.integers(0, 1000))
def test_proposals_stop_where_the_enumeration_stops(
    rule: Rule, pair: tuple[Model, Model], least: float, seed: int
) -> None:
    """So the enumeration speaks of the real drafting; and what is drawn does not depend on the threshold."""
    _, draft = pair
    drawn = draw_proposal(Tree(draft), a_task(rule, seed, least))
    whole = draw_proposal(Tree(draft), a_task(rule, seed, 0.0)).tokens
    assert len(whole) == DEPTH
    assert drawn.tokens == whole[: stopping_length(draft, whole, least)]


@settings(max_examples=40)
@given(pair=models, least=thresholds, seed=st.integers(0, 2**60))
def test_coupled_output_is_the_targets_own_wherever_proposals_stop(
    pair: tuple[Model, Model], least: float, seed: int
) -> None:
    target, draft = pair
    alone = coupled_tokens_alone(target, seed)
    drawn = draw_proposal(Tree(draft), a_task(Rule.COUPLED, seed, least)).tokens
    rows = torch.stack([row_behind(target, drawn[:i]) for i in range(len(drawn) + 1)])
    positions = [1 + i for i in range(len(rows))]
    (verdict,) = verify_coupled(rows, [drawn], [seed] * len(rows), positions)
    emitted = [*drawn[: verdict.accepted_count], verdict.next_token]
    assert emitted == alone[: len(emitted)]


def coupled_tokens_alone(target: Model, seed: int) -> list[int]:
    """What the target says without a draft, behind one token of prompt."""
    tokens: list[int] = []
    for position in range(1, DEPTH + 2):
        tokens.append(int(choose(row_behind(target, tokens)[None], [seed], [position])))
    return tokens
