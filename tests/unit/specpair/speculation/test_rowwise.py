"""What comes of a row is the same bits alone and beside any others: nothing is decided by the company of a request."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule, SamplingOptions
from specpair.speculation.draft_rows import DraftRows, stack_blocks
from specpair.speculation.logprobs import token_logprobs
from specpair.speculation.sampling import LEAST_DIVIDED, SamplingRows, probabilities
from specpair.speculation.verification import Block, acceptance_thresholds, packed_rows
from specpair.wire.distributions import decoded_dense
from tests.option_strategies import sampling_options

pytestmark = pytest.mark.usefixtures("arithmetic")


def random_logits(row_count: int, vocab_size: int, seed: int = 0) -> Tensor:
    return 4 * torch.randn(row_count, vocab_size, generator=torch.Generator().manual_seed(seed))


def check_rows(logits: Tensor, options: list[SamplingOptions]) -> None:
    together = probabilities(logits, SamplingRows.of(options))
    for row, own in enumerate(options):
        assert torch.equal(probabilities(logits[row : row + 1], SamplingRows.of([own]))[0], together[row]), own


@given(options=st.lists(sampling_options(200), min_size=2, max_size=6), seed=st.integers(0, 2**32))
def test_distributions(options: list[SamplingOptions], seed: int) -> None:
    check_rows(random_logits(len(options), 200, seed), options)


def test_a_row_that_nothing_cuts_beside_one_that_is_cut() -> None:
    for seed in range(20):
        check_rows(random_logits(2, 100, seed), [SamplingOptions(), SamplingOptions(top_p=0.9)])


def test_a_token_on_the_edge_of_min_p() -> None:
    """Beside another temperature the logits are taken relative to the largest, which rounds."""
    edge = torch.tensor([[1.1, 1.1 + torch.tensor(0.3).log().item(), -3.0]])
    near = torch.arange(-40, 41)[:, None] * 2.0**-26 * torch.tensor([[0.0, 1.0, 0.0]])
    for logits in edge + near:
        check_rows(logits.expand(2, -1), [SamplingOptions(min_p=0.3), SamplingOptions(temperature=0.5)])


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def random_block(draw: np.random.Generator, length: int, support: int, vocab_size: int) -> tuple[np.ndarray, DraftRows]:
    """Proposed tokens `[K]` and the rows that they come from."""
    token_ids = np.stack([draw.choice(vocab_size, support, replace=False) for _ in range(length)])
    weights = draw.integers(1, 1000, (length, support)).astype(float)
    tokens = token_ids[np.arange(length), draw.integers(0, support, length)]
    return tokens, DraftRows.of(token_ids, weights / weights.sum(-1, keepdims=True), tokens)


def acceptance(target: np.ndarray, *blocks: tuple[np.ndarray, DraftRows]) -> np.ndarray:
    """Of the first of the blocks, judged together by the block rule."""
    counts = np.array([len(tokens) for tokens, _ in blocks])
    rows = packed_rows(counts.tolist(), int(counts.max()))
    tokens = np.stack([tokens for tokens, _ in blocks])
    draft = stack_blocks([rows for _, rows in blocks])
    return acceptance_thresholds(target, Block(tokens, counts, draft, rows, Rule.BLOCK)).acceptance[0]


def test_a_block_beside_one_of_wider_support() -> None:
    draw = np.random.default_rng(0)
    for seed in range(60):
        own = random_block(draw, 5, int(draw.integers(100, 1000)), 4096)
        other = random_block(draw, 5, 1024, 4096)
        target = torch.softmax(random_logits(12, 4096, seed), -1).numpy()
        assert np.array_equal(acceptance(target[:6], own), acceptance(target, own, other))


@pytest.mark.usefixtures("two_threads")
def test_dense_rows_are_decoded_to_what_was_drawn_from() -> None:
    for seed in range(10):
        rows = torch.softmax(random_logits(3, 131072, seed), -1)
        together = decoded_dense(rows)
        for row, decoded in zip(rows, together, strict=True):
            assert torch.equal(decoded_dense(row[None])[0], decoded)


@pytest.mark.usefixtures("two_threads")
def test_one_long_row_that_threads_could_share() -> None:
    for seed in range(3):
        check_rows(random_logits(2, 131072, seed), [SamplingOptions(top_p=0.95), SamplingOptions(top_p=0.95)])


def test_logprobs_of_tied_tokens() -> None:
    """Of equal logits, as bf16 has many, those reported may not depend on how many somebody else wants."""
    logits = random_logits(2, 256).to(torch.bfloat16).float().round()
    for count in range(1, 20):
        (alone,) = token_logprobs(logits[:1], [5], [count])
        for others in range(21):
            assert token_logprobs(logits, [5, 7], [count, others])[0] == alone


@pytest.mark.usefixtures("two_threads")
def test_so_many_rows_that_threads_share_them() -> None:
    check_rows(random_logits(24, 49_152), [SamplingOptions(temperature=0.5 + row % 3 / 2) for row in range(24)])


@pytest.mark.usefixtures("by_numpy")
def test_rows_done_one_by_one_are_those_of_the_whole() -> None:
    for rows, vocab_size in ((16, 4096), (64, 8192), (2, 49_152)):
        logits = random_logits(rows, vocab_size)
        assert logits.numel() > LEAST_DIVIDED
        assert torch.equal(probabilities(logits, SamplingRows.of([SamplingOptions()] * rows)), logits.softmax(-1))
