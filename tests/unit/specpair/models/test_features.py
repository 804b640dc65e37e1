"""Hidden states that are asked for are the model's own, whoever runs it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from specpair.caches.holding import Segment
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.models.packed_model import recording
from specpair.native.library import native_library
from tests.services import engine_config
from tests.tiny_models import load_plain, make_model

IDS = [5, 17, 3, 44, 8, 21, 60, 2, 33, 12, 31, 7, 50, 9, 1, 2, 3, 4, 5, 6]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"runner": "plain"},
    "fused": {"runner": "fused"},
    "native": {"runner": "native"},
    "deterministic": {"deterministic": True},
}


@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("way", WAYS)
def test_features_are_hidden_states(way: str, kind: str, tmp_path: Path) -> None:
    """Of the last layer first, which transformers gives with the final norm applied; then of the first."""
    if way in ("fused", "native") and kind != "llama":
        pytest.skip("not known to this runner")
    if way == "native" and native_library() is None:
        pytest.skip("needs a compiler")
    facts, runner = load_runner(engine_config(make_model(tmp_path, kind), **WAYS[way]))
    last = len(facts.layers) - 1
    holdings = [runner.cache.open([]) for _ in range(2)]
    for holding, count in zip(holdings, (len(IDS), 3), strict=True):
        runner.cache.append(holding, count)
    segments = [Segment(holdings[0], 0, len(IDS)), Segment(holdings[1], 0, 3)]
    batch = Batch.of_chains(segments, IDS + IDS[:3], [4, 1], feature_layers=(last, 0))
    output = runner.forward(batch)
    model = load_plain(tmp_path)
    with torch.no_grad():
        states = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    rows = [16, 17, 18, 19, 2]
    assert output.features is not None and output.features.shape == (2, 5, 32)
    assert torch.allclose(output.features[1], states[1][0, rows], atol=2e-4)
    norm = {"llama": "norm", "gpt2": "ln_f", "opt": "decoder.final_layer_norm"}[kind]
    with torch.no_grad():
        final = model.base_model.get_submodule(norm)(output.features[0])
    assert torch.allclose(final, states[-1][0, rows], atol=2e-4)


def test_who_asks_for_none_gets_none(tmp_path: Path) -> None:
    _, runner = load_runner(engine_config(make_model(tmp_path)))
    holding = runner.cache.open([])
    runner.cache.append(holding, 3)
    assert runner.forward(Batch.of_chains([Segment(holding, 0, 3)], IDS[:3], [1])).features is None


class AddsInPlace(nn.Module):
    """A layer that goes on in the memory of the one before it."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.add_(1.0)


def test_states_are_those_of_the_layer_even_if_the_next_one_writes_over_them() -> None:
    layers = [AddsInPlace(), AddsInPlace()]
    with recording(layers, torch.tensor([2, 0])) as states:
        hidden = torch.arange(3.0)[None, :, None]
        for layer in layers:
            hidden = layer(hidden)
    assert states[0].tolist() == [[3.0], [1.0]] and states[1].tolist() == [[4.0], [2.0]]
