"""A head that drafts a tree says after each of its paths what it says after the same tokens in a chain."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specpair.models.drafting_runner import Asked
from specpair.speculation.trees.token_tree import ROOT
from tests.unit.specpair.models.test_eagle_head import IDS, feed, load

OTHER = [3, 1, 4, 1, 5, 9]
LEVELS = [
    [(ROOT, ROOT, 0)],
    [(0, ROOT, 11), (1, ROOT, 12)],
    [(2, 1, 13), (3, 0, 14)],
    [(4, 2, 15), (5, 3, 16), (6, 3, 17)],
]
"""Number, parent and token of each node."""
PATHS = {0: [11], 1: [12], 2: [12, 13], 3: [11, 14], 4: [12, 13, 15], 5: [11, 14, 16], 6: [11, 14, 17]}


@pytest.mark.parametrize("way", ["plain", "native"])
@pytest.mark.parametrize("kind", ["borrowing", "norm of each layer", "more key heads"])
def test_each_path_is_told_apart(kind: str, way: str, tmp_path: Path) -> None:
    *_, runner = load(tmp_path, kind, way)
    texts = [IDS, OTHER]
    holdings = [runner.cache.open([]) for _ in texts]
    for holding, text in zip(holdings, texts, strict=True):
        feed(runner, holding, text[:-1])
    places: list[Sequence[int]] = [range(len(text) - 1) for text in texts]
    trees = runner.grow(holdings, places, 16)
    found: list[tuple[Asked, Tensor]] = []
    for level in LEVELS:
        asked = [
            Asked(row, node, parent, text[-1] if node == ROOT else token)
            for row, text in enumerate(texts)
            for node, parent, token in level
        ]
        found += zip(asked, trees.logits(asked), strict=True)
    for one, logits in found:  # a runner may have both drafts write to the same places
        run = runner.begin([holdings[one.row]], [places[one.row]], 8)
        expected = run.logits([texts[one.row][-1]], [0])
        for token in PATHS.get(one.node, []):
            expected = run.logits([token], [0])
        torch.testing.assert_close(logits, expected[0], atol=1e-4, rtol=1e-4)
