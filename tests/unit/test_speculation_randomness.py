import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specpair.speculation.randomness import BITS, Domain, philox4x32, random_bits, uniforms

# philox4x32-10 in kat_vectors of Random123: counter, key, result.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
words = st.integers(0, 2**32 - 1)
seeds = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers_of_random123(counter, key, expected):
    assert philox4x32(counter, key) == expected


@given(st.lists(st.tuples(*[words] * 6), min_size=1, max_size=20))
def test_integers_arrays_and_tensors_agree(rows):
    expected = [philox4x32(row[:4], row[4:]) for row in rows]
    columns = np.array(rows, dtype=np.int64).T
    a, b, c, d, e, f = columns
    assert np.stack(philox4x32((a, b, c, d), (e, f)), -1).tolist() == [list(row) for row in expected]
    a, b, c, d, e, f = torch.from_numpy(columns.copy())
    assert torch.stack(philox4x32((a, b, c, d), (e, f)), -1).tolist() == [list(row) for row in expected]


@given(st.lists(st.tuples(seeds, st.sampled_from(Domain), seeds, words), min_size=17, max_size=30))
def test_many_draws_at_once_are_the_draws_one_by_one(keys):
    at_once = random_bits(*zip(*keys, strict=True)).tolist()
    assert at_once == [random_bits([seed], domain, [step], [offset]).item() for seed, domain, step, offset in keys]


def test_a_draw_is_the_philox_word_of_its_key():
    """Pins the layout of counter and key: outputs must be repeatable from version to version."""
    seed, step, offset = 0x299F31D0_A4093822, 0x13198A2E_85A308D3, 7
    word0, word1, _, _ = philox4x32((2, 0x85A308D3, 0x13198A2E, 7), (0xA4093822, 0x299F31D0))
    assert random_bits([seed], Domain.ACCEPT, [step], [offset]).item() == (word0 << 21) | (word1 >> 11)


def test_every_part_of_the_key_matters():
    base = (5, Domain.DRAFT, 9, 1)
    others = [(6, *base[1:]), (5 + 2**32, *base[1:]), (5 + 2**63, *base[1:])]
    others += [(5, domain, 9, 1) for domain in Domain if domain is not Domain.DRAFT]
    others += [(5, Domain.DRAFT, step, 1) for step in (10, 9 + 2**32, 9 + 2**63)] + [(5, Domain.DRAFT, 9, 2)]
    drawn = {random_bits([seed], domain, [step], [offset]).item() for seed, domain, step, offset in [base, *others]}
    assert len(drawn) == 1 + len(others)


def test_domains_are_disjoint():
    count = 2000
    drawn = [random_bits([3] * count, domain, range(count), [0] * count) for domain in Domain]
    assert len(set(torch.cat(drawn).tolist())) == count * len(Domain)
    correlations = np.corrcoef(torch.stack(drawn).double().numpy())
    assert np.abs(correlations - np.eye(len(Domain))).max() < 5 / math.sqrt(count)


@pytest.mark.parametrize("varied", ["seed", "step", "offset"])
def test_draws_are_uniform_whatever_varies(varied):
    count, bins = 50_000, 256
    key = {"seed": [1] * count, "step": [2] * count, "offset": [3] * count, varied: range(count)}
    drawn = uniforms(key["seed"], Domain.ACCEPT, key["step"], key["offset"]).numpy()
    observed = np.bincount((drawn * bins).astype(int), minlength=bins)
    assert stats.chisquare(observed).pvalue > 1e-4
    neighbours = np.corrcoef(drawn[1:], drawn[:-1])[0, 1]
    assert abs(neighbours) < 5 / math.sqrt(count)


def test_uniforms_lie_in_the_half_open_interval_with_all_their_bits():
    count = 50_000
    bits = random_bits(range(count), Domain.RESIDUAL, [0] * count, [0] * count)
    drawn = uniforms(range(count), Domain.RESIDUAL, [0] * count, [0] * count)
    assert drawn.dtype == torch.float64
    assert (drawn * 2**BITS).long().tolist() == bits.tolist()
    assert int(bits.min()) >= 0 and int(bits.max()) < 2**BITS
    set_share = ((bits[:, None] >> torch.arange(BITS)) & 1).double().mean(0)
    assert (set_share - 0.5).abs().max() < 5 * 0.5 / math.sqrt(count)
