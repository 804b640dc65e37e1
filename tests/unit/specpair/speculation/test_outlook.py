"""Outlooks name the best tokens of a row, best first, whatever form the row has."""

import pytest
import torch

from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.outlook import WIDTH, of_counts, of_logits, of_probabilities


def test_of_logits() -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    for outlook, row in zip(of_logits(logits), logits, strict=True):
        assert list(outlook.token_ids) == row.topk(WIDTH).indices.tolist()
        assert sum(outlook.shares) == pytest.approx(1.0)
    assert [len(outlook.token_ids) for outlook in of_logits(logits[:, :3])] == [3] * 3


def test_of_probabilities_and_counts() -> None:
    row = torch.tensor([0.1, 0.5, 0.0, 0.4])
    outlook = of_probabilities(row)
    assert list(outlook.token_ids)[:3] == [1, 3, 0] and outlook.shares[0] == 0.5
    counts = of_counts(CountRow([2, 5, 9], [TOTAL // 4, TOTAL // 2, TOTAL // 4]))
    assert counts == ([5, 2, 9], [0.5, 0.25, 0.25])
