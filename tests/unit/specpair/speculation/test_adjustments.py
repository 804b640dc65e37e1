from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.options import SamplingOptions
from specpair.speculation.adjustments import NamedTokens, RowBlock, adjust
from specpair.speculation.output_counts import OutputCounts
from specpair.speculation.sampling import SamplingRows, probabilities
from tests.option_strategies import sampling_options
from tests.reference import plain_distribution

VOCABULARY = 12


@st.composite
def row_blocks(draw: st.DrawFn) -> RowBlock:
    tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12))
    row_count = draw(st.integers(1, min(4, len(tokens))))
    prompt_length = draw(st.integers(1, len(tokens) - row_count + 1))
    return row_block(draw(sampling_options(VOCABULARY)), tokens, prompt_length, row_count)


def row_block(options: SamplingOptions, tokens: list[int], prompt_length: int, row_count: int) -> RowBlock:
    named = NamedTokens.of(options, tokens[:prompt_length])
    return RowBlock(options, named, tokens, prompt_length, row_count, OutputCounts())


def history(block: RowBlock, row: int) -> tuple[list[int], list[int]]:
    """Prompt and output that a row has seen."""
    seen = list(block.tokens[: block.first_length + row])
    return seen[: block.prompt_length], seen[block.prompt_length :]


@pytest.mark.slow
@given(st.lists(row_blocks(), min_size=1, max_size=4), st.integers(0, 2**31))
@settings(deadline=None, max_examples=200)
def test_each_row_is_what_a_plain_loop_makes_of_it(blocks: list[RowBlock], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    row_count = sum(block.row_count for block in blocks)
    logits = torch.randn(row_count, VOCABULARY, generator=generator, dtype=torch.float64) * 2
    before = logits.clone()
    options = [block.options for block in blocks for _ in range(block.row_count)]
    actual = probabilities(adjust(logits, blocks), SamplingRows.of(options))
    rows = [(block, row) for block in blocks for row in range(block.row_count)]
    for (block, row), own, result in zip(rows, logits, actual, strict=True):
        expected = plain_distribution(own.numpy(), block.options, *history(block, row))
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)
    assert torch.equal(logits, before)


@given(st.lists(row_blocks(), min_size=2, max_size=5), sampling_options(VOCABULARY))
@settings(deadline=None, max_examples=100)
def test_counts_that_are_kept_give_the_same_as_new_ones(blocks: list[RowBlock], options: SamplingOptions) -> None:
    """Whatever the sequence was before: one that grew, was rolled back, or has another beginning."""
    kept = OutputCounts()
    for block in blocks:
        new = row_block(options, list(block.tokens), block.prompt_length, block.row_count)
        logits = torch.randn(block.row_count, VOCABULARY)
        assert torch.equal(adjust(logits, [new._replace(counts=kept)]), adjust(logits, [new]))


def test_nothing_is_copied_without_need() -> None:
    logits = torch.randn(2, 5)
    assert adjust(logits, [row_block(SamplingOptions(top_k=3, min_p=0.1, min_tokens=3), [1, 2], 1, 2)]) is logits


def test_a_drafted_token_is_history_for_the_rows_behind_it() -> None:
    options = SamplingOptions(frequency_penalty=1.0, presence_penalty=0.5, repetition_penalty=2.0)
    adjusted = adjust(torch.full((3, 4), 4.0), [row_block(options, [0, 3, 1, 1], 1, 3)])
    assert adjusted[:, 0].tolist() == [2.0, 2.0, 2.0]  # prompt: divided, nothing deducted
    assert adjusted[:, 1].tolist() == [4.0, 0.5, -0.5]
    assert adjusted[:, 2].tolist() == [4.0, 4.0, 4.0]
    assert adjusted[:, 3].tolist() == [0.5, 0.5, 0.5]


def test_stop_tokens_are_held_back_up_to_min_tokens_within_a_block() -> None:
    options = SamplingOptions(min_tokens=2, stop_token_ids=(1,))
    adjusted = adjust(torch.zeros(4, 3), [row_block(options, [0, 2, 2, 2], 1, 4)])
    assert adjusted[:, 1].isneginf().tolist() == [True, True, False, False]


PENALTIES = [
    SamplingOptions(repetition_penalty=1.5),
    SamplingOptions(presence_penalty=1.5),
    SamplingOptions(frequency_penalty=1.5),
]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_masked_token_stays_masked(penalty: SamplingOptions) -> None:
    options = replace(penalty, banned_token_ids=(1,), logit_bias=((1, 100.0),))
    adjusted = adjust(torch.zeros(1, 3), [row_block(options, [0, 1], 1, 1)])
    assert adjusted[0, 1] == -torch.inf
