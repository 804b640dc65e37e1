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
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_llama(folder: Path, **changes: Any) -> Path:
    """A tiny Llama whose rows are whole blocks of quantised weights, with the vocabulary of the files."""
    return make_model(folder, vocab_size=len(TOKENS), intermediate_size=64, **{"tie_word_embeddings": True, **changes})


def write_gguf(
    path: Path,
    model_folder: Path,
    type: Type = Type.F32,
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes the Llama in `model_folder` to `path`, its matrices in `type`. Entries of `metadata` and `tensors` are
    added or replaced; those that are None are left out."""
    model = load_plain(model_folder)
    entries = {**described(model.config), **(metadata or {})}
    writer = gguf.GGUFWriter(path, entries.pop("general.architecture", "llama"))
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
    """The metadata of a Llama with the tokenizer of these files."""
    return {
        "general.name": "tiny",
        "llama.context_length": config.max_position_embeddings,
        "llama.block_count": config.num_hidden_layers,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": config.rope_parameters["rope_theta"],
        "llama.rope.dimension_count": config.head_dim,
        "llama.vocab_size": config.vocab_size,
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
    """The weights by their names in GGUF; queries and keys rotate neighbours there, halves in transformers."""
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    tensors: dict[str, np.ndarray] = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        values = weight.float().numpy()
        for part, count in heads.items():
            if f".{part}." in name:
                values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        tensors[name] = np.ascontiguousarray(values)
    return tensors
