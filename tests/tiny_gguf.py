"""Tiny GGUF files, written from tiny models as llama.cpp's converter writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from tokenizers.pre_tokenizers import ByteLevel

from tests.tiny_models import load_plain, make_model

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_OF_TEXT, START, END = range(3)
CHARACTERS = sorted(ByteLevel.alphabet())
MERGES = [("h", "i"), ("\u0120", "\u0120"), ("\u0120\u0120", "\u0120")]
TOKENS = [*SPECIAL, *CHARACTERS, *("".join(merge) for merge in MERGES)]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}: {{ message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
NORMAL_TOKEN, CONTROL_TOKEN = 1, 3
ARCHITECTURES = {
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "llama": gguf.MODEL_ARCH.LLAMA,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
}


def make_llama(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """A tiny Llama, or one like it, whose rows are whole blocks of quantised weights, with the files' vocabulary."""
    shape = {"vocab_size": len(TOKENS), "intermediate_size": 64, "tie_word_embeddings": True}
    return make_model(folder, kind, **{**shape, **changes})


def write_gguf(
    path: Path,
    model_folder: Path,
    type: Type = Type.F32,
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes the model in `model_folder` to `path`, its matrices in `type`. Entries of `metadata` and `tensors` are
    added or replaced; those that are None are left out."""
    model = load_plain(model_folder)
    entries = {**described(model.config), **(metadata or {})}
    writer = gguf.GGUFWriter(path, entries.pop("general.architecture", model.config.model_type))
    for key, value in entries.items():
        add_entry(writer, key, value)
    for name, weights in {**converted(model), **(tensors or {})}.items():
        if weights is not None:
            add_tensor(writer, name, weights, type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def described(config: Any) -> dict[str, Any]:
    """The metadata of a model with the tokenizer of these files."""
    kind, rope = config.model_type, config.rope_parameters
    return {
        "general.name": "tiny",
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        **described_norm(config),
        f"{kind}.rope.freq_base": rope["rope_theta"],
        f"{kind}.rope.dimension_count": int(head_size(config) * rope.get("partial_rotary_factor", 1.0)),
        f"{kind}.attention.key_length": head_size(config),
        f"{kind}.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [CONTROL_TOKEN if token in SPECIAL else NORMAL_TOKEN for token in TOKENS],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in MERGES],
        "tokenizer.ggml.bos_token_id": START,
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def described_norm(config: Any) -> dict[str, float]:
    if config.model_type == "starcoder2":
        return {"starcoder2.attention.layer_norm_epsilon": config.norm_epsilon}
    return {f"{config.model_type}.attention.layer_norm_rms_epsilon": config.rms_norm_eps}


def add_entry(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Integers as uint32, which is what llama.cpp reads."""
    if value is None:
        return
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    adders.get(type(value), writer.add_array)(key, value)


def add_tensor(writer: gguf.GGUFWriter, name: str, weights: np.ndarray, type: Type) -> None:
    """Vectors stay float32, as in every file."""
    if weights.ndim == 1 or type is Type.F32:
        writer.add_tensor(name, weights)
    else:
        writer.add_tensor(name, gguf.quantize(weights, type), raw_dtype=type)


def converted(model: Any) -> dict[str, np.ndarray]:
    """The weights by their names in GGUF."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    tensors: dict[str, np.ndarray] = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        part, _, end = name.rpartition(".")
        values = weight.float().numpy()
        if config.model_type == "llama":
            values = turned(values, part, config)
        if config.model_type == "gemma2" and "norm" in part:
            values = values + 1
        tensors[f"{names.get_name(part)}.{end}"] = np.ascontiguousarray(values)
    return tensors


def turned(weights: np.ndarray, part: str, config: Any) -> np.ndarray:
    """Queries and keys with their rows as llama.cpp's Llama has them: it rotates neighbours, transformers halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(part.rpartition(".")[2])
    if count is None:
        return weights
    return weights.reshape(count, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
