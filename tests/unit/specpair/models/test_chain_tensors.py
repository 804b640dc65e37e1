"""The tensors of chains: what one proposal leaves in them must not reach the next."""

import numpy as np
import pytest
import torch
from torch import Tensor

from specpair.caches.holding import Holding
from specpair.models.chain_row import ChainKind, ChainRow
from specpair.models.chain_tensors import MOST_STEPS, ChainTensors
from specpair.options import SamplingOptions

VOCABULARY = 64
PADDING = {"temperature": 1, "top_p": 1, "min_p": 1, "top_k": 0, "seeds": 0, "counts": 0, "_vocab_sizes": VOCABULARY}
"""Of rows of padding, which no race is for and whose bits are 0."""


def chain(number: int, count: int, vocab_size: int = 40) -> ChainRow:
    """No field of it is that of padding."""
    return ChainRow(
        holding=Holding(4, []),
        position=3,
        count=count,
        sampling=SamplingOptions(temperature=0.5, top_p=0.75, min_p=0.25, top_k=number, seed=2**64 - number),
        is_coupled=True,
        min_confidence=0.0,
        confidence=1.0,
        vocab_size=vocab_size,
        bits=np.arange(1, count + 1) * 1000 + number,
        looks=False,
        is_awaited=True,
    )


def make_tensors(row_count: int, chains: list[ChainRow]) -> ChainTensors:
    return ChainTensors(row_count, ChainKind.of(chains, VOCABULARY), VOCABULARY, torch.device("cpu"))


def fill(tensors: ChainTensors, chains: list[ChainRow]) -> None:
    tensors.fill(chains, torch.zeros(len(chains), VOCABULARY))
    tensors.staging.run(tensors.load)


def bits_of(tensors: ChainTensors) -> Tensor:
    """Those of all steps: int64 `[steps, rows]`."""
    assert int(tensors.step) == 0
    found: list[Tensor] = []
    for _ in range(MOST_STEPS):
        found.append(tensors.bits_now().clone())
        tensors.next_step()
    return torch.stack(found)


def assert_filled(tensors: ChainTensors, chains: list[ChainRow]) -> None:
    """The first rows are of these, and all others are padding."""
    count = len(chains)
    options = [each.sampling for each in chains]
    expected = {
        **{name: [getattr(each, name) for each in options] for name in ("temperature", "top_p", "min_p", "top_k")},
        "seeds": [each.seed - 2**64 for each in options],  # the same bits
        "counts": [each.count for each in chains],
        "_vocab_sizes": [each.vocab_size for each in chains],
    }
    for name, padding in PADDING.items():
        values = getattr(tensors, name).tolist()
        assert values == expected[name] + [padding] * (len(values) - count), name
    assert tensors.are_raced.tolist() == [True] * count + [False] * (len(tensors.counts) - count)
    bits = bits_of(tensors)
    for place, each in enumerate(chains):
        assert bits[: each.count, place].tolist() == each.bits.tolist()
        assert not bits[each.count :, place].any()
    assert not bits[:, count:].any()


@pytest.mark.parametrize("row_count", [3, 4])  # fractions end in the middle of a number, or not
def test_a_smaller_proposal_finds_nothing_of_the_one_before(row_count: int) -> None:
    many, few = [chain(number, MOST_STEPS) for number in range(1, row_count + 1)], [chain(9, 2, vocab_size=50)]
    tensors = make_tensors(row_count, many)
    assert_filled(tensors, [])
    fill(tensors, many)
    assert_filled(tensors, many)
    tensors.next_step()  # as a proposal that ended early: the next begins with the first step
    fill(tensors, few)
    assert_filled(tensors, few)


def test_cleared_rows_are_padding_on_the_device() -> None:
    chains = [chain(number, 5) for number in (1, 2)]
    tensors = make_tensors(2, chains)
    fill(tensors, chains)
    tensors.next_step()
    tensors.clear()
    assert_filled(tensors, [])
