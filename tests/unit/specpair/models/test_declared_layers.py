"""More layers than a checkpoint has are refused before the model is built."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from specpair.errors import ModelRefusedError
from specpair.models.declared_layers import declared, layers_at_most
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from tests.services import engine_config
from tests.tiny_encoder_decoders import make_encoder_decoder
from tests.tiny_models import make_model

MANY = 10**12
"""A list of so many would need more memory than there is."""


def with_fields(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize("count", [4, 100_000, MANY])
@pytest.mark.parametrize(("kind", "field"), [("llama", "num_hidden_layers"), ("qwen2", "num_hidden_layers")])
def test_layers_that_are_not_there_are_refused_at_once(kind: str, field: str, count: int, tmp_path: Path) -> None:
    folder = with_fields(make_model(tmp_path, kind), **{field: count})
    began = time.monotonic()
    with pytest.raises(ModelRefusedError, match=f"{field} is {count}, but its tensors are of 3 layers"):
        load_runner(engine_config(folder))
    assert time.monotonic() - began < 10


def test_the_field_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="n_layer is 100000, but its tensors are of 2 layers"):
        load_runner(engine_config(with_fields(make_model(tmp_path, "gpt2"), n_layer=100_000)))


@pytest.mark.parametrize(
    ("kind", "field"),
    [("t5", "num_layers"), ("t5", "num_decoder_layers"), ("bart", "encoder_layers"), ("bart", "decoder_layers")],
)
def test_encoder_and_decoder_have_numbers_of_their_own(kind: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match=f"{field} is 100000"):
        load_runner(engine_config(with_fields(make_encoder_decoder(tmp_path, kind), **{field: 100_000})))


def test_layers_of_all_files_count(tmp_path: Path) -> None:
    """A large checkpoint is in several."""
    whole = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    files = {
        f"model-{part}-of-2.safetensors": [name for name in tensors if ("layers.2." in name) == (part == 2)]
        for part in (1, 2)
    }
    for file, names in files.items():
        save_file({name: tensors[name] for name in names}, tmp_path / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, names in files.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert len(load(engine_config(tmp_path)).facts.layers) == 3
    with pytest.raises(ModelRefusedError, match="num_hidden_layers is 4, but its tensors are of 3 layers"):
        load(engine_config(with_fields(tmp_path, num_hidden_layers=4)))


def test_the_number_of_a_layer_is_the_first_in_a_name() -> None:
    assert layers_at_most(["model.layers.1.mlp.experts.63.up_proj.weight", "lm_head.weight"]) == 2
    assert layers_at_most(["a.weight", "b.weight"]) == 2


def test_only_numbers_of_layers_count() -> None:
    """Of the part about text too; what is no number is for transformers to refuse."""
    fields = {"model_type": "gpt2", "n_layer": 3, "num_layers": 9, "text_config": {"num_hidden_layers": "many"}}
    assert declared(fields) == {"n_layer": 3}
    assert declared({"model_type": ["llama"], "num_hidden_layers": 3}) == {"num_hidden_layers": 3}
    assert declared({"text_config": {"num_hidden_layers": 5}}) == {"text_config.num_hidden_layers": 5}
