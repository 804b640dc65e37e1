"""Reads the Llama family from a GGUF file, in a quarter of the time of transformers' reader, which reads all others.

That reader goes twice through every token of the vocabulary, and builds its table of names anew for each module.
"""

import re
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoConfig

from specpair.errors import ModelRefusedError
from specpair.models.gguf_header import ARCHITECTURE, GgufHeader
from specpair.models.gguf_tensor import POSITION_FACTORS, read_tensor

FAMILY = ("llama", "qwen2", "qwen3")
HEAD = "output.weight"
SETTINGS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
TOKENS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "padding_token_id": "pad_token_id",
}
OUTER_PARTS = {"token_embd": "embed_tokens", "output_norm": "norm"}
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def is_family(header: GgufHeader) -> bool:
    return header.metadata.get(ARCHITECTURE) in FAMILY


def family_settings(header: GgufHeader) -> Any:
    """The configuration, as transformers has it. Raises ModelRefusedError if the file leaves something out."""
    metadata, kind = header.metadata, header.metadata[ARCHITECTURE]
    found: dict[str, Any] = {ours: metadata.get(f"{kind}.{theirs}") for theirs, ours in SETTINGS.items()}
    found["num_key_value_heads"] = found["num_key_value_heads"] or found["num_attention_heads"]
    if absent := [theirs for theirs, ours in SETTINGS.items() if found[ours] is None]:
        raise ModelRefusedError(f"it does not say its {kind}.{absent[0]}")
    head_size = metadata.get(f"{kind}.attention.key_length", found["hidden_size"] // found["num_attention_heads"])
    if (rotated := metadata.get(f"{kind}.rope.dimension_count", head_size)) != head_size:
        raise ModelRefusedError(f"it rotates {rotated} of {head_size} dimensions of a head, which {kind} does not")
    return AutoConfig.for_model(
        kind,
        head_dim=head_size,
        vocab_size=header.tensors["token_embd.weight"].shape[0],
        tie_word_embeddings=HEAD not in header.tensors,
        **{ours: metadata.get(f"tokenizer.ggml.{theirs}") for theirs, ours in TOKENS.items()},
        **found,
    )


def family_weights(path: Path, header: GgufHeader, settings: Any) -> dict[str, Tensor]:
    """The weights by their names in transformers, float32. Raises ModelRefusedError for one without a name there."""
    heads = {"attn_q": settings.num_attention_heads, "attn_k": settings.num_key_value_heads}
    weights: dict[str, Tensor] = {}
    for name, stored in header.tensors.items():
        if name == POSITION_FACTORS:
            continue
        tensor = read_tensor(path, stored)
        part = name.split(".")[-2]
        if settings.model_type == "llama" and part in heads:
            tensor = turned_back(tensor, heads[part])
        weights[transformers_name(name)] = tensor
    return weights


def transformers_name(name: str) -> str:
    """The name of a tensor in transformers."""
    if name == HEAD:
        return "lm_head.weight"
    part, _, end = name.rpartition(".")
    if part in OUTER_PARTS:
        return f"model.{OUTER_PARTS[part]}.{end}"
    found = LAYER.fullmatch(name)
    if found is None or found[2] not in LAYER_PARTS:
        raise ModelRefusedError(f"it has a superfluous {name[:64]}")
    return f"model.layers.{found[1]}.{LAYER_PARTS[found[2]]}.{found[3]}"


def turned_back(weight: Tensor, head_count: int) -> Tensor:
    """Rows of queries or keys as transformers has them: the halves of a head rotate together; in llama.cpp's Llama
    neighbours do."""
    pairs = weight.view(head_count, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
