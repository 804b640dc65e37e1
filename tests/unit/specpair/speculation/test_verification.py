from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.draft_rows import DraftRows, stack_blocks
from specpair.speculation.own_token import draw_own
from specpair.speculation.sparse_rows import draw_counts, sparsify
from specpair.speculation.verification import (
    Block,
    Judgement,
    acceptance_thresholds,
    packed_rows,
    residual_weights,
    verify,
)

STEP = 3
BELOW_ONE = 1 - 2.0**-53
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What verification gets for one sequence."""

    target: Tensor
    """[K + 1, V]"""
    tokens: Tensor
    """[K]"""
    draft: DraftRows
    """[K, S], in numpy"""
    rule: Rule
    accept_uniforms: Tensor
    """[K]"""
    seed: int = 0
    """Of the noise of the next token."""


def random_rows(generator: torch.Generator, count: int, vocab_size: int, spread: float) -> Tensor:
    logits = torch.randn(count, vocab_size, generator=generator, dtype=torch.float64) * spread
    return logits.masked_fill(torch.rand(logits.shape, generator=generator) < 0.1, -1e9).softmax(-1)


def random_proposal(seed: int, length: int, rule: Rule, vocab_size: int = 40) -> Proposal:
    generator = torch.Generator().manual_seed(seed)
    rows = sparsify(random_rows(generator, length, vocab_size, 2.0), mass_cut=0.02)
    bits = torch.randint(2**53, (length,), generator=generator).tolist()
    tokens = [draw_counts(*pair) for pair in zip(rows, bits, strict=True)]
    return Proposal(
        target=random_rows(generator, length + 1, vocab_size, 2.0),
        tokens=torch.tensor(tokens, dtype=torch.int64),
        draft=draft_rows(rows, tokens),
        rule=rule,
        accept_uniforms=torch.rand(length, generator=generator, dtype=torch.float64),
        seed=seed,
    )


def draft_rows(rows: list[CountRow], tokens: list[int]) -> DraftRows:
    """Rows as they come out of their bytes."""
    shape = len(rows), max((len(row.token_ids) for row in rows), default=1)
    token_ids, probabilities = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    for i, row in enumerate(rows):
        token_ids[i, : len(row.token_ids)] = row.token_ids
        probabilities[i, : len(row.counts)] = np.array(row.counts) / TOTAL
    return DraftRows.of(token_ids, probabilities, np.array(tokens, dtype=np.int64))


def padded(rows: list[Tensor], fill: float) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)


def as_block(batch: list[Proposal], convert: Callable[[np.ndarray], Any] = torch.from_numpy) -> Block:
    """Of proposals under one rule; arrays of numpy become tensors unless told otherwise."""
    lengths = [len(one.tokens) for one in batch]
    return Block(
        convert(padded([one.tokens for one in batch], 3).numpy()),
        convert(np.array(lengths)),
        DraftRows(*map(convert, stack_blocks([one.draft for one in batch]))),
        convert(packed_rows(lengths, max(*lengths, 1))),
        batch[0].rule,
    )


def judge(batch: list[Proposal]) -> Judgement:
    """In numpy and as tensors, which must agree."""
    target = torch.cat([one.target for one in batch])
    accept = padded([one.accept_uniforms for one in batch], 0.0)
    keys = torch.tensor([one.seed for one in batch]), torch.full((len(batch),), STEP)
    verdicts = verify(target.numpy(), as_block(batch, np.asarray), accept.numpy(), *(key.numpy() for key in keys))
    same = verify(target, as_block(batch), accept, *keys)
    finite = ~torch.stack([one.target.isnan().any() for one in batch]).numpy()
    for ours, theirs in zip(verdicts, same, strict=True):
        assert ours[finite].tolist() == theirs.numpy()[finite].tolist()
    return verdicts


def own_token(row: list[float], seed: int) -> np.ndarray:
    """What is drawn from weights [V]: [1]."""
    return draw_own(np.array([row]), np.array([seed]), np.array([STEP]))


def dense(draft: DraftRows, vocab_size: int) -> Tensor:
    """[K, V]"""
    rows = torch.zeros(draft.token_ids.shape[0], vocab_size, dtype=torch.float64)
    return rows.scatter_add_(-1, torch.from_numpy(draft.token_ids), torch.from_numpy(draft.probabilities))


def reference(one: Proposal) -> tuple[list[float], list[float], Tensor]:
    """h_1 .. h_K, P_0 .. P_K (1 throughout for the token rule) and q [K, V] by the formulas as they are printed."""
    q = dense(one.draft, one.target.shape[1])
    ratios = [float(one.target[i, x] / q[i, x]) for i, x in enumerate(one.tokens)]
    if one.rule is Rule.TOKEN:
        return [min(1.0, ratio) for ratio in ratios], [1.0] * (len(ratios) + 1), q
    joint = [1.0]
    for ratio in ratios:
        joint.append(min(1.0, joint[-1] * ratio))
    thresholds = []
    for i in range(1, len(ratios)):
        s = float((joint[i] * one.target[i] - q[i]).clamp_min(0.0).sum())
        thresholds.append(1.0 if s + 1 - joint[i] == 0 else s / (s + 1 - joint[i]))
    return [*thresholds, *joint[len(ratios) :][: len(ratios)]], joint, q


def some_proposals(rule: Rule, shortest: int) -> st.SearchStrategy[list[Proposal]]:
    one = st.builds(random_proposal, st.integers(0, 2**31), st.integers(shortest, 6), st.just(rule))
    return st.lists(one, min_size=1, max_size=6).filter(lambda batch: any(len(one.tokens) for one in batch))


batches = st.sampled_from((Rule.TOKEN, Rule.BLOCK)).flatmap(lambda rule: some_proposals(rule, 0))


@settings(max_examples=50)
@given(batches)
def test_thresholds_are_those_of_the_papers(batch):
    thresholds = acceptance_thresholds(torch.cat([one.target for one in batch]), as_block(batch))
    for one, acceptance, scales in zip(batch, thresholds.acceptance, thresholds.scales, strict=True):
        length = len(one.tokens)
        expected, joint, _ = reference(one)
        assert acceptance[:length].tolist() == pytest.approx(expected, abs=1e-9)
        assert acceptance[length:].tolist() == [0.0] * (len(acceptance) - length)
        assert scales[: length + 1].tolist() == pytest.approx(joint, abs=1e-12)


@settings(max_examples=50)
@given(batches)
def test_residuals_are_those_of_the_papers(batch):
    block, target = as_block(batch), torch.cat([one.target for one in batch])
    thresholds = acceptance_thresholds(target, block)
    for n in range(7):
        counts = block.lengths.clamp_max(n)
        weights = residual_weights(target, block, thresholds, counts)
        for one, count, row in zip(batch, counts.tolist(), weights, strict=True):
            _, joint, q = reference(one)
            expected = one.target[count]
            if count < len(one.tokens):
                expected = (joint[count] * expected - q[count]).clamp_min(0.0)
            if expected.sum() > 1e-9:
                torch.testing.assert_close(row / row.sum(), expected / expected.sum(), rtol=1e-9, atol=1e-9)


@settings(max_examples=50)
@given(batches)
def test_a_mixed_batch_is_judged_as_one_at_a_time(batch):
    together = judge(batch)
    alone = [judge([one]) for one in batch]
    assert together.accepted_counts.tolist() == [one.accepted_counts.item() for one in alone]
    assert together.next_tokens.tolist() == [one.next_tokens.item() for one in alone]


@settings(max_examples=50)
@given(batches)
def test_dense_rows_are_judged_as_sparse_ones(batch):
    def densely(one: Proposal) -> Proposal:
        rows = dense(one.draft, one.target.shape[1])
        token_ids = np.broadcast_to(np.arange(rows.shape[1]), rows.shape).copy()
        return Proposal(**{**vars(one), "draft": DraftRows.of(token_ids, rows.numpy(), one.tokens.numpy())})

    sparse, whole = judge(batch), judge([densely(one) for one in batch])
    assert sparse.accepted_counts.tolist() == whole.accepted_counts.tolist()
    assert sparse.next_tokens.tolist() == whole.next_tokens.tolist()


@given(batches)
def test_verdicts_stay_inside_and_never_name_a_token_without_probability(batch):
    verdicts = judge(batch)
    for one, count, token in zip(batch, verdicts.accepted_counts.tolist(), verdicts.next_tokens.tolist(), strict=True):
        assert 0 <= count <= len(one.tokens)
        assert one.target[count, token] > 0
        assert all(one.target[i, x] > 0 for i, x in enumerate(one.tokens[:count]))


def simple(
    target: list[list[float]],
    draft: list[list[float]],
    tokens: list[int],
    rule: Rule,
    *,
    uniform: float = 0.0,
    seed: int = 0,
) -> Proposal:
    rows = np.array(draft).reshape(len(tokens), len(target[0]))
    token_ids = np.broadcast_to(np.arange(rows.shape[1]), rows.shape).copy()
    return Proposal(
        target=torch.tensor(target, dtype=torch.float64),
        tokens=torch.tensor(tokens, dtype=torch.int64),
        draft=DraftRows.of(token_ids, rows, np.array(tokens, dtype=np.int64)),
        rule=rule,
        accept_uniforms=torch.full((len(tokens),), uniform, dtype=torch.float64),
        seed=seed,
    )


@rules
def test_a_token_of_probability_zero_is_never_accepted(rule):
    """Even by a uniform of exactly 0, in any place of the block."""
    row, without = [0.5, 0.5], [1.0, 0.0]
    for place, expected in ((0, 0), (1, 1), (2, 2)):
        target = [row, row, row, row]
        target[place] = without
        verdict = judge([simple(target, [row] * 3, [1, 1, 1], rule)])
        assert (verdict.accepted_counts.item(), verdict.next_tokens.item()) == (expected, 0)


@rules
@pytest.mark.parametrize("uniform", [0.0, 0.5, BELOW_ONE])
def test_equal_distributions_accept_everything(rule, uniform):
    row = [0.125, 0.25, 0.625]
    verdict = judge([simple([row] * 4, [row] * 3, [0, 1, 2], rule, uniform=uniform)])
    own = own_token(row, 0).tolist()
    assert (verdict.accepted_counts.tolist(), verdict.next_tokens.tolist()) == ([3], own)


@rules
@pytest.mark.parametrize("uniform", [0.0, 0.5, BELOW_ONE])
@pytest.mark.parametrize(("tokens", "accepted"), [([2, 0, 1], 3), ([2, 0, 0], 2), ([2, 1, 1], 1), ([1, 0, 1], 0)])
def test_a_greedy_target_accepts_what_it_would_have_written(rule, uniform, tokens, accepted):
    """Whatever the uniforms: Stratos, "Speculative Decoding", appendix A."""
    greedy = torch.eye(3)[[2, 0, 1, 2]].tolist()
    draft = [[0.2, 0.3, 0.5]] * 3
    verdict = judge([simple(greedy, draft, tokens, rule, uniform=uniform)])
    assert (verdict.accepted_counts.item(), verdict.next_tokens.item()) == (accepted, [2, 0, 1, 2][accepted])


@rules
def test_a_greedy_draft_is_one_hot(rule):
    draft = DraftRows(np.array([[1], [0]]), np.ones((2, 1)), np.ones(2))
    one = simple([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [1, 0], rule)
    for uniform, accepted in ((0.0, 2), (BELOW_ONE, 0)):
        uniforms = torch.full((2,), uniform, dtype=torch.float64)
        verdict = judge([Proposal(**{**vars(one), "draft": draft, "accept_uniforms": uniforms})])
        assert (verdict.accepted_counts.item(), verdict.next_tokens.item()) == (accepted, 0)


def test_the_block_rule_takes_the_last_token_that_passes():
    """The first uniform fails, the second does not; the token rule stops at the first."""
    target, draft = [[0.5, 0.5], [0.9, 0.1], [0.0, 1.0]], [[0.75, 0.25], [0.5, 0.5]]
    for rule, accepted in ((Rule.BLOCK, 2), (Rule.TOKEN, 0)):
        one = simple(target, draft, [0, 0], rule)
        uniforms = torch.tensor([0.99, 0.01], dtype=torch.float64)
        verdict = judge([Proposal(**{**vars(one), "accept_uniforms": uniforms})])
        assert verdict.accepted_counts.item() == accepted


@rules
def test_without_a_proposal_the_next_token_comes_from_the_target(rule):
    row = [0.25, 0.0, 0.75]
    for seed in range(20):
        one = simple([row], [], [], rule, seed=seed)
        one = Proposal(**{**vars(one), "draft": draft_rows([], [])})
        verdict, token = judge([one, one]), own_token(row, seed)[0]
        assert verdict.accepted_counts.tolist() == [0, 0] and verdict.next_tokens.tolist() == [token] * 2


@rules
def test_a_residual_without_mass_gives_way_to_the_target(rule):
    """Only rounding can reject here: q exceeds p by its last bits everywhere, so nothing is left of p - q."""
    p = [0.3, 0.7]
    q = [value * (1 + 1e-12) for value in p]
    for seed in range(20):
        verdict = judge([simple([p, p], [q], [0], rule, uniform=BELOW_ONE, seed=seed)])
        assert verdict.accepted_counts.item() == 0
        assert verdict.next_tokens.tolist() == own_token(p, seed).tolist()


@rules
def test_float32_rows_are_enough(rule):
    batch = [random_proposal(seed, seed % 5, rule) for seed in range(80)]
    narrow = [Proposal(**{**vars(one), "target": one.target.float()}) for one in batch]
    block = as_block(batch)
    wide_thresholds = acceptance_thresholds(torch.cat([one.target for one in batch]), block)
    thresholds = acceptance_thresholds(torch.cat([one.target for one in narrow]), block)
    torch.testing.assert_close(thresholds.acceptance, wide_thresholds.acceptance, rtol=0, atol=1e-5)
    assert judge(narrow).accepted_counts.tolist() == judge(batch).accepted_counts.tolist()


@rules
def test_many_improbable_tokens_do_not_overflow(rule):
    """Ratios of 2^40, forty in a row: their product is beyond float64, the threshold still 1."""
    q = [2.0**-40, 1 - 2.0**-40]
    p = [1.0, 0.0]
    verdict = judge([simple([p] * 41, [q] * 40, [0] * 40, rule, uniform=BELOW_ONE)])
    assert (verdict.accepted_counts.item(), verdict.next_tokens.item()) == (40, 0)


@rules
def test_rows_that_are_not_finite_leave_other_sequences_alone(rule):
    batch = [random_proposal(seed, 1 + seed % 3, rule) for seed in range(6)]
    expected = judge(batch)
    for bad in (0, 2, 5):
        spoilt = Proposal(**{**vars(batch[bad]), "target": torch.full_like(batch[bad].target, torch.nan)})
        verdicts = judge([*batch[:bad], spoilt, *batch[bad + 1 :]])
        others = [i for i in range(len(batch)) if i != bad]
        assert verdicts.accepted_counts[others].tolist() == expected.accepted_counts[others].tolist()
        assert verdicts.next_tokens[others].tolist() == expected.next_tokens[others].tolist()
        assert verdicts.accepted_counts[bad] == 0
