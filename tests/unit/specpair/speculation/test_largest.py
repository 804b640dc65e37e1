import pytest
import torch

from specpair.speculation.largest import largest


@pytest.mark.parametrize(("width", "k"), [(5, 5), (64, 1), (128, 1), (1024, 8), (1025, 8), (2048, 16), (2047, 3)])
@pytest.mark.parametrize("levels", [3, 1_000_000])
def test_finds_what_a_sort_finds(width, k, levels):
    """Few levels mean many equal values, also across the groups."""
    rows = torch.randint(levels, (7, width), generator=torch.Generator().manual_seed(width)).float()
    values, indices = largest(rows, k)
    assert torch.equal(values, rows.sort(-1, descending=True).values[:, :k])
    assert torch.equal(rows.gather(-1, indices), values)
    assert all(len(set(row)) == k for row in indices.tolist())


def test_values_that_crowd_in_one_group_are_all_found():
    rows = torch.zeros(1, 4096)
    rows[0, 64:128] = torch.arange(1.0, 65.0)
    values, indices = largest(rows, 16)
    assert values[0].tolist() == list(range(64, 48, -1))
    assert indices[0].tolist() == list(range(127, 111, -1))


def test_minus_infinity_is_the_smallest():
    rows = torch.full((1, 4096), -torch.inf)
    rows[0, 77] = -3.0
    values, indices = largest(rows, 2)
    assert values[0].tolist() == [-3.0, -torch.inf] and indices[0, 0] == 77
