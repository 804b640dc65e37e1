"""The compiled judge: numpy's decisions and draws, and by enumeration the target's distribution."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.native.library import native_library, quick_functions
from specpair.options import Rule
from specpair.speculation.count_row import CountRow
from specpair.speculation.counted_rows import UINT32, CountedRows
from specpair.speculation.draft_rows import DraftRows, stack_blocks
from specpair.speculation.native_judging import can_judge, judge_natively
from specpair.speculation.own_token import draw_own
from specpair.speculation.sparse_rows import draw_counts, sparsify
from specpair.speculation.verification import (
    Block,
    Thresholds,
    acceptance_thresholds,
    packed_rows,
    residual_weights,
)
from tests.unit.specpair.speculation.enumeration import Model, continuations, joint_distribution, random_model

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")
rules = pytest.mark.parametrize("rule", (Rule.TOKEN, Rule.BLOCK))
EXACT, CLOSE = 1e-12, 1e-12
ROUNDING = 2.0**-50
"""Of sums of numbers below 1 that are added in another order: some units in the last place of 1."""
BELOW_ONE = 1 - 2.0**-53
STEP = 3


@pytest.fixture(autouse=True, scope="module")
def loaded() -> Iterator[None]:
    native_library()
    yield


@dataclass(frozen=True, kw_only=True)
class Case:
    """One proposal with its noise."""

    target: np.ndarray
    """[K + 1, V] float32"""
    draft: CountedRows
    accept_uniforms: np.ndarray
    seed: int
    """Of the noise of the next token."""


def counted(rows: list[CountRow], tokens: list[int], total_log2: int, vocab_size: int) -> CountedRows:
    table = np.empty((3, len(rows)), dtype=np.int64)
    table[0], table[1] = [len(row.token_ids) for row in rows], tokens
    table[2] = [
        np.asarray(row.counts)[np.asarray(row.token_ids) == token].sum()
        for row, token in zip(rows, tokens, strict=True)
    ]
    parts = [[np.asarray(part, dtype=UINT32) for part in row] for row in rows]
    ids, counts = (b"".join(row[index].tobytes() for row in parts) for index in (0, 1))
    return CountedRows(array("q", table.tobytes()), ids, counts, total_log2, vocab_size)


def some_logits(generator: torch.Generator, count: int, width: int, spread: float, zeros: float) -> Tensor:
    logits = torch.randn(count, width, generator=generator) * spread
    masked = torch.rand(logits.shape, generator=generator) < zeros
    masked[:, 0] = False
    return logits.masked_fill(masked, -torch.inf)


def random_case(seed: int, length: int, width: int, spread: float, zeros: float, likeness: float) -> Case:
    """Likeness 1: the draft is the target, but for its rounding."""
    generator, noise = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    logits = some_logits(generator, length + 1, width, spread, zeros)
    others = some_logits(generator, length, width, spread, zeros)
    mixed = others if likeness == 0.0 else logits[:length] if likeness == 1.0 else others.where(others > 0, logits[:-1])
    rows = sparsify(mixed.softmax(-1)) if length else []
    tokens = [draw_counts(row, int(noise.integers(2**53))) for row in rows]
    uniforms = noise.random(length + 1)
    ends = noise.random(length + 1) < 0.2
    uniforms[ends] = noise.choice([0.0, BELOW_ONE], int(ends.sum()))
    return Case(
        target=logits.softmax(-1).numpy(),
        draft=counted(rows, tokens, 24, width),
        accept_uniforms=uniforms[:length],
        seed=seed,
    )


cases = st.builds(
    random_case,
    seed=st.integers(0, 2**31),
    length=st.integers(0, 8),
    width=st.one_of(st.integers(1, 70), st.sampled_from([1024, 5000])),
    spread=st.sampled_from([0.0, 0.3, 1.0, 3.0, 40.0]),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
    likeness=st.sampled_from([0.0, 0.5, 1.0]),
)


def as_block(case: Case, rule: Rule) -> Block:
    length = case.draft.table.shape[1]
    lengths = np.array([length])
    return Block(case.draft.table[1:2], lengths, stack_blocks([case.draft.padded]), packed_rows([length], length), rule)


def numpy_thresholds(case: Case, block: Block) -> Thresholds:
    with np.errstate(all="ignore"):  # as `verify` does
        thresholds = acceptance_thresholds(case.target, block)
    off = 1.0 - thresholds.scales
    assume(not ((off != 0) & (np.abs(off) < EXACT)).any())  # there h is a ratio of two rounding errors
    return thresholds


def slack(expected: Thresholds) -> np.ndarray:
    """How far thresholds h = r / (r + 1 - P) [K] may be from these: rounding of r and P counts for more where the
    denominator, (1 - P) / (1 - h), is small."""
    missing = 1.0 - expected.scales[0, 1:]
    inverse = np.divide(1.0 - expected.acceptance[0], missing, out=np.zeros_like(missing), where=missing > 0.0)
    return CLOSE + ROUNDING * inverse


def expected_counts(acceptance: np.ndarray, uniforms: np.ndarray, rule: Rule) -> set[int]:
    """The accepted counts that thresholds within rounding of these can give."""
    found = set()
    for off in (-CLOSE, 0.0, CLOSE):
        accepted = uniforms < acceptance + off * (acceptance > 0)
        if rule is Rule.TOKEN:
            found.add(int(accepted.cumprod().sum()))
        else:
            found.add(int((accepted * np.arange(1, len(accepted) + 1)).max()))
    return found


def first_two(weights: np.ndarray, seeds: np.ndarray, steps: np.ndarray) -> list[int]:
    """The first tokens to arrive: by rounding of the weights the second may be the first."""
    first = draw_own(weights, seeds, steps)[0]
    others = weights.copy()
    others[0, first] = 0.0
    return [first, draw_own(others, seeds, steps)[0]]


@rules
@given(case=cases)
@example(case=random_case(4, 3, 1024, 1.0, 0.0, 0.0))  # no token of the residual comes before the first time limit
@settings(max_examples=300)
def test_decisions_are_those_of_numpy(rule: Rule, case: Case) -> None:
    assert can_judge(case.target, [case.draft])
    uniforms, keys = case.accept_uniforms[None], (np.array([case.seed]), np.array([STEP]))
    (decision,) = judge_natively(case.target, [case.draft], rule, uniforms, *keys)
    assert decision.is_finite
    if not uniforms.size:
        assert (decision.accepted_count, decision.next_token) == (0, draw_own(case.target, *keys)[0])
        return
    block = as_block(case, rule)
    thresholds = numpy_thresholds(case, block)
    assert decision.accepted_count in expected_counts(thresholds.acceptance[0], case.accept_uniforms, rule)
    weights = residual_weights(case.target, block, thresholds, np.array([decision.accepted_count]))
    if rule is Rule.TOKEN or decision.accepted_count in (0, uniforms.shape[1]):  # scaled by 1
        assert decision.next_token == draw_own(weights, *keys)[0]
    else:  # the last bits of its scale are others
        assert weights[0, decision.next_token] > 0
        assert decision.next_token in first_two(weights, *keys)


@rules
@given(case=cases)
def test_thresholds_and_residuals_are_those_of_numpy(rule: Rule, case: Case) -> None:
    if not case.accept_uniforms.size:
        return
    block = as_block(case, rule)
    expected = numpy_thresholds(case, block)
    thresholds, residuals = explained(case.target, case.draft, rule)
    assert (np.abs(thresholds - expected.acceptance[0]) <= slack(expected)).all()
    for count, weights in enumerate(residuals):
        own = residual_weights(case.target, block, expected, np.array([count]))
        assert np.allclose(weights, own[0], rtol=0, atol=EXACT)


@rules
def test_a_proposal_is_judged_in_company_as_it_is_alone(rule: Rule) -> None:
    batch = [random_case(seed, length, 300, 1.0, 0.1, 0.5) for seed, length in enumerate((3, 0, 5, 1, 8))]
    seeds, steps = np.array([case.seed for case in batch]), np.arange(5)
    uniforms = np.zeros((5, 8))
    for row, case in zip(uniforms, batch, strict=True):
        row[: len(case.accept_uniforms)] = case.accept_uniforms
    rows = np.concatenate([case.target for case in batch])
    together = judge_natively(rows, [case.draft for case in batch], rule, uniforms, seeds, steps)
    alone = [
        judge_natively(case.target, [case.draft], rule, case.accept_uniforms[None], seeds[i : i + 1], steps[i : i + 1])[
            0
        ]
        for i, case in enumerate(batch)
    ]
    assert together == alone


def test_rows_that_are_not_finite_are_told() -> None:
    case = random_case(1, 3, 40, 1.0, 0.0, 0.5)
    for row in range(4):
        spoilt = case.target.copy()
        spoilt[row] = np.nan
        both = np.concatenate((spoilt, case.target))
        uniforms, keys = np.stack([case.accept_uniforms] * 2), np.array([case.seed] * 2)
        for rule in (Rule.TOKEN, Rule.BLOCK):
            first, second = judge_natively(both, [case.draft] * 2, rule, uniforms, keys, keys)
            assert not first.is_finite and second.is_finite
            assert 0 <= first.accepted_count <= 3 and 0 <= first.next_token < 40
            assert judge_natively(case.target, [case.draft], rule, uniforms[:1], keys[:1], keys[:1]) == [second]


def test_what_it_cannot_read_is_left_to_numpy() -> None:
    case = random_case(1, 3, 40, 1.0, 0.0, 0.5)
    assert can_judge(case.target, [case.draft])
    for target in (case.target.astype(np.float64), case.target[:, :39], torch.from_numpy(case.target)):
        assert not can_judge(target, [case.draft])
    dense = DraftRows.of(np.zeros((3, 1), dtype=np.int64), np.ones((3, 1)), np.zeros(3, dtype=np.int64))
    assert not can_judge(case.target, [dense])
    assert not can_judge(case.target, [case.draft, case.draft]) and not can_judge(
        case.target, [case.draft.beginning(2)]
    )
    narrow = np.ascontiguousarray(case.target[:, :39])
    assert not can_judge(narrow, [case.draft])


def explained(target: np.ndarray, draft: CountedRows, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds [K], and the weights [K + 1, V] of the next token after 0 .. K accepted ones."""
    length, width = draft.table.shape[1], target.shape[1]
    thresholds, residuals = np.empty(length), np.empty((length + 1, width))
    functions = quick_functions()
    assert functions is not None
    assert not functions.specpair_explain(
        *(target.ctypes.data, width, length, draft.numbers.buffer_info()[0], draft.id_bytes, draft.count_bytes),
        *(draft.total_log2, rule is Rule.BLOCK, thresholds.ctypes.data, residuals.ctypes.data),
    )
    return thresholds, residuals


TOTAL_LOG2 = 10


def in_parts(model: Model) -> Model:
    """The same in whole 2^-TOTAL_LOG2: exact in float32 and as counts."""
    rounded = []
    for level in model:
        counts = (level * 2**TOTAL_LOG2).floor()
        counts[torch.arange(len(counts)), counts.argmax(-1)] += 2**TOTAL_LOG2 - counts.sum(-1)
        rounded.append(counts / 2**TOTAL_LOG2)
    return rounded


def chances(thresholds: np.ndarray, rule: Rule) -> list[float]:
    """How likely 0 .. K accepted tokens are."""
    length = len(thresholds)
    if rule is Rule.TOKEN:
        return [thresholds[:n].prod() * (1 - thresholds[n] if n < length else 1.0) for n in range(length + 1)]
    return [(thresholds[n - 1] if n else 1.0) * (1 - thresholds[n:]).prod() for n in range(length + 1)]


def emitted(target: Model, draft: Model, rule: Rule) -> Tensor:
    """The distribution of the next K + 1 tokens [V^(K + 1)], the target writing what the round does not."""
    width, length = draft[0].shape[1], len(draft)
    total = [torch.zeros(width ** (n + 1), dtype=torch.float64) for n in range(length + 1)]
    likely = joint_distribution(draft)
    for number, block in enumerate(product(range(width), repeat=length)):
        if likely[number] == 0:
            continue
        prefixes = [sum(x * width ** (n - 1 - i) for i, x in enumerate(block[:n])) for n in range(length + 1)]
        rows = [level[prefix] for level, prefix in zip(target, prefixes, strict=True)]
        sent = [(level[prefix] * 2**TOTAL_LOG2).long() for level, prefix in zip(draft, prefixes, strict=False)]
        count_rows = [CountRow(row.nonzero()[:, 0].tolist(), row[row > 0].tolist()) for row in sent]
        proposal = counted(count_rows, list(block), TOTAL_LOG2, width)
        thresholds, residuals = explained(torch.stack(rows).float().numpy(), proposal, rule)
        for n, chance in enumerate(chances(thresholds, rule)):
            if chance > 0:
                following = torch.from_numpy(residuals[n] / residuals[n].sum())
                total[n][prefixes[n] * width : (prefixes[n] + 1) * width] += likely[number] * chance * following
    joint = [(mass[:, None] * continuations(target, n + 1)).flatten() for n, mass in enumerate(total)]
    return torch.stack(joint).sum(0)


@rules
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    width=st.integers(2, 4),
    length=st.integers(1, 3),
    spread=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    zeros=st.sampled_from([0.0, 0.3, 0.7]),
)
def test_a_round_emits_what_the_target_would(
    rule: Rule, seed: int, width: int, length: int, spread: float, zeros: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = in_parts(random_model(generator, width, length + 1, spread, zeros))
    draft = in_parts(random_model(generator, width, length, spread, zeros))
    assert (emitted(target, draft, rule) - joint_distribution(target)).abs().max() < EXACT
