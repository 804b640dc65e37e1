"""The files that are written for llama.cpp hold the weights of the checkpoint."""

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.case import Weights
from bench.gguf_file import write_gguf
from command.failures import CommandError
from tests.tiny_models import load_plain, make_model

SIZES: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
HALF_A_STEP = 0.5 + 127 * 2**-11
"""Of a scale. The scale is itself rounded, to 11 bits: with 127 steps that is up to another sixteenth of a step."""


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads on two key-value heads, of which the order of the rows depends."""
    return make_model(tmp_path_factory.mktemp("model") / "llama", tie_word_embeddings=request.param, **SIZES)


def written(folder: Path, path: Path, weights: Weights) -> dict[str, torch.Tensor]:
    """The weights as transformers reads them out of the written file."""
    write_gguf(folder, path / "model.gguf", weights)
    read: Any = AutoModelForCausalLM.from_pretrained(path, gguf_file="model.gguf", dtype=torch.float32)
    return read.state_dict()


def test_bf16_has_every_weight_in_its_place(folder: Path, tmp_path: Path) -> None:
    expected = load_plain(folder).state_dict()
    found = written(folder, tmp_path, Weights.BF16)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        kept = values if values.ndim == 1 else values.to(torch.bfloat16).float()
        assert torch.equal(found[name], kept), name


def test_q8_0_is_within_half_a_step_of_every_weight(folder: Path, tmp_path: Path) -> None:
    found = written(folder, tmp_path, Weights.Q8_0)
    for name, values in load_plain(folder).state_dict().items():
        if values.ndim == 1:
            assert torch.equal(found[name], values), name
            continue
        groups = values.reshape(-1, 32)
        steps = groups.abs().amax(1, keepdim=True) / 127
        assert ((found[name].reshape(-1, 32) - groups).abs() <= HALF_A_STEP * steps).all(), name


def test_rows_that_are_no_whole_groups_stay_in_bf16(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "llama", **{**SIZES, "intermediate_size": 80})
    write_gguf(folder, tmp_path / "model.gguf", Weights.Q8_0)
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert types["blk.0.ffn_down.weight"] == "BF16"
    assert types["blk.0.ffn_up.weight"] == types["token_embd.weight"] == "Q8_0"
    assert types["blk.0.attn_norm.weight"] == "F32"


def test_no_token_of_the_vocabulary_ends_a_text(folder: Path, tmp_path: Path) -> None:
    write_gguf(folder, tmp_path / "model.gguf", Weights.BF16)
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert len(set(tokens)) == len(tokens) == load_plain(folder).config.vocab_size
    assert all(token.isascii() for token in tokens)
    assert "tokenizer.ggml.eos_token_id" not in fields


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "other", "qwen2")
    with pytest.raises(CommandError, match="qwen2"):
        write_gguf(folder, tmp_path / "model.gguf", Weights.BF16)


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a folder"):
        write_gguf(Path("organisation/model"), tmp_path / "model.gguf", Weights.BF16)


def test_scaled_positions_are_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    folder = make_model(tmp_path / "scaled", rope_parameters=rope)
    with pytest.raises(CommandError, match="rotary"):
        write_gguf(folder, tmp_path / "model.gguf", Weights.BF16)
