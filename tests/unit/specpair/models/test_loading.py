"""What cannot be served correctly is refused at load, by name; the rest is checked against the model's own logits."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from specpair.caches import plan
from specpair.caches.attention import Variant, attend
from specpair.errors import ModelRefusedError
from specpair.models.load_runner import load_runner
from specpair.models.loading import LIBRARIES, load
from tests.services import engine_config
from tests.tiny_models import make_model

SMALL: dict[str, Any] = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
REFUSED: dict[str, tuple[Any, str]] = {
    "recurrent state": (hf.MambaConfig(vocab_size=32, hidden_size=32, num_hidden_layers=2, state_size=4), "mamba"),
    "chunked attention": (
        hf.Llama4TextConfig(**SMALL, head_dim=8, intermediate_size=32, intermediate_size_mlp=32, num_local_experts=2),
        "chunked_attention",
    ),
    "attention sinks": (
        hf.GptOssConfig(**SMALL, head_dim=8, num_key_value_heads=2, intermediate_size=32, num_local_experts=4),
        "s_aux",
    ),
    "own attention classes": (
        hf.GPTNeoConfig(vocab_size=32, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]]),
        "gpt_neo",
    ),
    "linear biases by position": (hf.BloomConfig(vocab_size=32, hidden_size=32, n_layer=2, n_head=4), "bloom"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str, tmp_path: Path) -> None:
    config, named = REFUSED[case]
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelRefusedError, match=named):
        load_runner(engine_config(tmp_path))


def test_wrong_attention_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check's own check: an attention that ignores its mask does not get past it."""

    def unmasked(query: Any, keys: Any, values: Any, mask: Any, variant: Variant) -> torch.Tensor:
        return attend(query, keys, values, None, variant)

    make_model(tmp_path)
    load_runner(engine_config(tmp_path, runner="fused"))
    monkeypatch.setattr(plan, "attend", unmasked)
    with pytest.raises(ModelRefusedError, match="logits through the cache differ"):
        load_runner(engine_config(tmp_path, runner="fused"))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    make_model(tmp_path)
    weights = tmp_path / "model.safetensors"
    torch.save({}, tmp_path / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ModelRefusedError, match="cannot be loaded"):
        load_runner(engine_config(tmp_path))


def test_a_missing_weight_is_refused(tmp_path: Path) -> None:
    """transformers would fill its place at random."""
    weights = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelRefusedError, match=r"layers\.1\.mlp\.up_proj\.weight is not in it"):
        load_runner(engine_config(tmp_path))


def test_a_left_over_tensor_is_ignored(tmp_path: Path) -> None:
    """Some checkpoints hold what other programs need."""
    weights = make_model(tmp_path) / "model.safetensors"
    save_file({**load_file(weights), "another.weight": torch.zeros(2)}, weights, metadata={"format": "pt"})
    load_runner(engine_config(tmp_path))


def test_unknown_model_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="neither a model folder"):
        load_runner(engine_config(tmp_path / "nothing"))


def test_length_beyond_the_model_is_refused(tmp_path: Path) -> None:
    make_model(tmp_path)
    with pytest.raises(ModelRefusedError, match="--max-model-len is 129, but the model has 128"):
        load_runner(engine_config(tmp_path, max_model_len=129))


def test_a_length_that_is_too_short_for_the_check_is_refused(tmp_path: Path) -> None:
    """It was said to be a cache that is too small."""
    with pytest.raises(ModelRefusedError, match=r"at most 4 tokens are too short .* see --max-model-len"):
        load_runner(engine_config(make_model(tmp_path), max_model_len=4))


def test_bfloat16_is_served(tmp_path: Path) -> None:
    make_model(tmp_path)
    loaded, runner = load_runner(engine_config(tmp_path, dtype="bfloat16", cache="paged"))
    assert loaded.dtype is torch.bfloat16
    assert runner.cache.free_block_count == runner.cache.block_count


def test_loading_draws_nothing_into_a_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = make_model(tmp_path)
    capfd.readouterr()
    load_runner(engine_config(folder))
    assert "it/s" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_libraries_say_is_in_the_log_of_the_process_alone(
    library: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that is not JSON would be one that nobody reads."""
    logger = logging.getLogger(library)
    logger.addHandler(logging.StreamHandler())
    logger.propagate = False
    load_runner(engine_config(make_model(tmp_path)))
    logging.getLogger(f"{library}.part").warning("retrying")
    assert [record.message for record in caplog.records if record.name == f"{library}.part"] == ["retrying"]
    assert "retrying" not in capsys.readouterr().err


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"])
@pytest.mark.parametrize("changes", [{}, {"runner": "plain"}, {"quantization": "int8"}], ids=str)
def test_weights_that_are_no_numbers_are_named(
    changes: dict[str, Any], name: str, value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were said to be a fault of the attention, after each runner had been tried."""
    weights = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    tensors[name][5, 3] = value
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelRefusedError, match=f"{re.escape(name)} holds NaN or infinite weights"):
        load_runner(engine_config(tmp_path, **changes))
    assert "attention" not in caplog.text


def rewritten(folder: Path, file: str, **changes: Any) -> Path:
    """The folder with other fields in one of its files."""
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_weights_that_were_cut_off_are_refused(kept: int, tmp_path: Path) -> None:
    """As a download leaves them that was interrupted."""
    weights = make_model(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(ModelRefusedError, match=f"{tmp_path} cannot be loaded: Error while deserializing header"):
        load_runner(engine_config(tmp_path))


WRONG_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"rms_norm_eps": "small"}, "'rms_norm_eps' expected float"),
    "sizes that do not divide": ({"hidden_size": 33}, r"hidden size \(33\) is not a multiple"),
    "an odd head": ({"head_dim": 7}, "even rotary dimension"),
    "no heads": ({"num_attention_heads": 0}, "modulo by zero"),
    "no heads of keys": ({"num_key_value_heads": 0}, "by zero"),
    "no layers": ({"num_hidden_layers": 0}, "sent 0 of its 0 layers"),
    "no positions": ({"max_position_embeddings": -1}, "max_position_embeddings is -1; a prompt"),
    "a negative number under a root": ({"rms_norm_eps": -5.0}, "config.json is wrong, or it exceeds float32"),
    "an unknown activation": ({"hidden_act": "swoosh"}, "llama: hidden_act is 'swoosh', which transformers does not"),
    "an unknown rotation": (
        {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}},
        r"llama: rope_parameters\.rope_type is 'spiral'",
    ),
    "an unknown type of weights": ({"dtype": "float8"}, "float8"),
}


@pytest.mark.parametrize("case", WRONG_FIELDS)
def test_a_wrong_field_is_a_refusal_that_says_what_is_wrong(case: str, tmp_path: Path) -> None:
    fields, reason = WRONG_FIELDS[case]
    with pytest.raises(ModelRefusedError, match=reason):
        load_runner(engine_config(rewritten(make_model(tmp_path), "config.json", **fields)))


@pytest.mark.parametrize(("named", "ends"), [(-1, []), ([5, 64, 2**40], [5]), ([7, 5], [5, 7]), ("x", [])])
def test_an_end_that_the_vocabulary_does_not_have_ends_nothing(named: Any, ends: list[int], tmp_path: Path) -> None:
    """Some files say -1 for none. Such an id fits into no message, so nobody could ask for the model's facts."""
    folder = rewritten(make_model(tmp_path), "generation_config.json", eos_token_id=named)
    assert load(engine_config(folder)).facts.eos_token_ids == ends
