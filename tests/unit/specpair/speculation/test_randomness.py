import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specpair.speculation.device_randomness import device_words, philox4x64
from specpair.speculation.randomness import BITS, Domain, draw_bits, random_bits, random_words, uniforms

# philox4x64-10 in kat_vectors of Random123: counter, key, result.
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (2**64 - 1,) * 4,
        (2**64 - 1,) * 2,
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]
words = st.integers(0, 2**64 - 1)


def plain_philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x64-10 as it is printed."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (
            (product1 >> 64) ^ c1 ^ k0,
            product1 % 2**64,
            (product0 >> 64) ^ c3 ^ k1,
            product0 % 2**64,
        )
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % 2**64, (k1 + 0xBB67AE8584CAA73B) % 2**64
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers_of_random123(counter, key, expected):
    assert plain_philox(counter, key) == expected
    assert of_tensors([(*counter, *key)]) == [expected]


def of_tensors(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The words of (counter, key)."""
    a, b, c, d, e, f = torch.from_numpy(np.array(rows, dtype=np.uint64).T.view(np.int64).copy())
    result = torch.stack(philox4x64((a, b, c, d), (e, f)), -1).numpy().view(np.uint64)
    return [tuple(row) for row in result.tolist()]


@given(st.lists(st.tuples(*[words] * 6), min_size=1, max_size=20))
def test_tensors_are_computed_as_integers_are(rows):
    assert of_tensors(rows) == [plain_philox(row[:4], row[4:]) for row in rows]


@given(words, st.sampled_from(Domain), words, st.integers(0, 2**50), st.integers(0, 12))
def test_a_stream_is_philox_of_its_key(seed, domain, step, first, count):
    """Pins the layout of counter and key, and numpy's generator: outputs must be repeatable from version to version."""
    blocks = range(first // 4 + 1, (first + count) // 4 + 2)
    expected = [word for block in blocks for word in plain_philox((block, step, 0, 0), (seed, domain))]
    assert random_words(seed, domain, step, first, count).tolist() == expected[first % 4 :][:count]


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5), st.sampled_from(Domain), st.integers(1, 20))
def test_a_device_makes_the_same_streams(keys, domain, count):
    seeds, steps = zip(*keys, strict=True)
    made = device_words(seeds, domain, steps, count, torch.device("cpu")).numpy().view(np.uint64)
    assert made.tolist() == [random_words(seed, domain, step, 0, count).tolist() for seed, step in keys]


@given(words, words, st.integers(1, 20))
def test_draws_are_the_upper_bits_of_the_words(seed, step, count):
    stream = random_words(seed, Domain.ACCEPT, step, 0, count)
    bits = random_bits(seed, Domain.ACCEPT, step, count)
    assert bits.dtype == np.int64 and bits.tolist() == [word >> 11 for word in stream.tolist()]
    assert [draw_bits(seed, Domain.ACCEPT, step, offset) for offset in range(count)] == bits.tolist()
    assert (uniforms(stream) * 2**BITS).astype(np.int64).tolist() == bits.tolist()


def test_threads_do_not_disturb_each_other():
    expected = [random_bits(seed, Domain.DRAFT, 0, 5).tolist() for seed in range(200)]
    seen: list[list[list[int]]] = []

    def draw() -> None:
        for _ in range(20):
            seen.append([random_bits(seed, Domain.DRAFT, 0, 5).tolist() for seed in range(200)])

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80 and all(draws == expected for draws in seen)


def test_every_part_of_the_key_matters():
    base = (5, Domain.DRAFT, 9, 1)
    others = [(6, *base[1:]), (5 + 2**32, *base[1:]), (5 + 2**63, *base[1:])]
    others += [(5, domain, 9, 1) for domain in Domain if domain is not Domain.DRAFT]
    others += [(5, Domain.DRAFT, step, 1) for step in (10, 9 + 2**32, 9 + 2**63)]
    others += [(5, Domain.DRAFT, 9, offset) for offset in (0, 2, 4, 5)]
    assert len({draw_bits(*key) for key in [base, *others]}) == 1 + len(others)


def draws(seeds, domain, steps, offsets) -> np.ndarray:
    return np.array([draw_bits(*key) for key in zip(seeds, [domain] * len(seeds), steps, offsets, strict=True)])


def test_domains_are_disjoint():
    count = 2000
    drawn = np.stack([draws([3] * count, domain, range(count), [0] * count) for domain in Domain])
    assert len(set(drawn.ravel().tolist())) == count * len(Domain)
    correlations = np.corrcoef(drawn.astype(np.float64))
    assert np.abs(correlations - np.eye(len(Domain))).max() < 5 / math.sqrt(count)


@pytest.mark.parametrize("varied", ["seed", "step", "offset"])
def test_draws_are_uniform_whatever_varies(varied):
    count, bins = 50_000, 256
    key = {"seed": [1] * count, "step": [2] * count, "offset": [3] * count, varied: range(count)}
    drawn = draws(key["seed"], Domain.ACCEPT, key["step"], key["offset"]) * 2.0**-BITS
    observed = np.bincount((drawn * bins).astype(int), minlength=bins)
    assert stats.chisquare(observed).pvalue > 1e-4
    neighbours = np.corrcoef(drawn[1:], drawn[:-1])[0, 1]
    assert abs(neighbours) < 5 / math.sqrt(count)


def test_uniforms_lie_in_the_half_open_interval_with_all_their_bits():
    count = 50_000
    bits = random_bits(3, Domain.ACCEPT, 0, count)
    assert bits.min() >= 0 and bits.max() < 2**BITS
    assert uniforms(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == [0.0, 1 - 2.0**-BITS]
    set_share = ((bits[:, None] >> np.arange(BITS)) & 1).mean(0)
    assert np.abs(set_share - 0.5).max() < 5 * 0.5 / math.sqrt(count)
