"""What comes of a row is the same bits alone and beside any others: nothing is decided by the company of a request."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import SamplingOptions
from specpair.speculation.logprobs import token_logprobs
from specpair.speculation.sampling import SamplingRows, probabilities
from tests.option_strategies import sampling_options


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
