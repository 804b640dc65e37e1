"""Outlooks name the best tokens of a row, best first, whatever form the row has."""

import pytest
import torch

from specpair.speculation.outlook import WIDTH, of_logits


def test_of_logits() -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    for outlook, row in zip(of_logits(logits), logits, strict=True):
        assert list(outlook.token_ids) == row.topk(WIDTH).indices.tolist()
        assert sum(outlook.shares) == pytest.approx(1.0)
    assert [len(outlook.token_ids) for outlook in of_logits(logits[:, :3])] == [3] * 3
