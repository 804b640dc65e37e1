"""The words of the kernel are those of numpy's generator."""

import numpy as np
import pytest
import torch

from specpair.speculation import device_randomness
from specpair.speculation.device_randomness import as_signed, leading_words, words_at
from specpair.speculation.randomness import Domain, random_words

SEEDS = [0, 1, 2**64 - 1, 0x9E3779B97F4A7C15]
STEPS = [0, 7, 2**40, 2**64 - 1]


@pytest.mark.needs("triton")
@pytest.mark.parametrize("count", [1, 700])
@pytest.mark.parametrize("domain", [Domain.GUMBEL, Domain.GUMBEL_LOWER])
def test_words_are_those_of_the_generator(domain: Domain, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_randomness, "has_philox", lambda device: True)
    monkeypatch.setattr(device_randomness, "philox4x64", None)
    seeds, steps = (torch.from_numpy(as_signed(numbers)) for numbers in (SEEDS, STEPS))
    made = leading_words(seeds, domain, steps, count).numpy().view(np.uint64)
    for row, seed, step in zip(made, SEEDS, STEPS, strict=True):
        assert np.array_equal(row, random_words(seed, domain, step, 0, count))
    places = torch.tensor([[5, 0, 2**33, 42]]).expand(len(SEEDS), -1)
    found = words_at(seeds, domain, steps, places).numpy().view(np.uint64)
    for row, seed, step in zip(found, SEEDS, STEPS, strict=True):
        assert row.tolist() == [random_words(seed, domain, step, place, 1)[0] for place in places[0].tolist()]


def test_without_a_gpu_it_is_not_used() -> None:
    assert not device_randomness.has_philox(torch.device("cpu")) and not device_randomness.has_philox(
        torch.device("meta")
    )
