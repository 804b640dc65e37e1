"""A Llama checkpoint as a GGUF file, for llama.cpp to be measured on the same weights.

Queries and keys have their rows in the order in which llama.cpp turns them: pairs beside each other, where
`transformers` has them half a head apart. Norms stay in float32. Prompts are token ids, so the vocabulary only needs as
many entries as the model has tokens: RWKV's kind has no token that ends a text, and ASCII entries make the server send
each token at once, where it would hold back half a character.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import safe_open
from transformers import AutoConfig

from bench.case import Weights
from command.failures import CommandError

GROUP_SIZE = 32
"""Q8_0 has a scale for each 32 weights of a row; a matrix whose rows cannot be divided so stays in bf16."""


STORED = {
    Weights.BF16: (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    Weights.Q8_0: (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def write_gguf(folder: Path, path: Path, weights: Weights) -> None:
    """Writes the checkpoint in `folder` to `path`. Raises CommandError if there is none, or no plain Llama."""
    if not (folder / "config.json").is_file():
        raise CommandError(f"{folder} is not a folder with a model, which llama.cpp is given as a file")
    config: Any = AutoConfig.from_pretrained(folder)
    check_kind(folder, config)
    matrix_type, file_type = STORED[weights]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    add_sizes(writer, config)
    add_vocabulary(writer, config.vocab_size)
    writer.add_file_type(file_type)
    for name, values in tensors(folder, config):
        kind = stored_type(values, matrix_type)
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_kind(folder: Path, config: Any) -> None:
    if config.model_type != "llama":
        raise CommandError(f"{folder} holds a {config.model_type} model; only Llama models are written for llama.cpp")
    if config.rope_parameters["rope_type"] != "default":
        raise CommandError(f"{folder} scales its rotary positions, which is not written for llama.cpp")


def add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([f"<{number}>" for number in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)


def tensors(folder: Path, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """llama.cpp's names and the values in float32. Without output weights llama.cpp takes the embeddings, as
    `transformers` does for the same checkpoint."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no mapping
                if (its_name := names.get_name(name, try_suffixes=(".weight", ".bias"))) is None:
                    raise CommandError(f"{folder} has {name}, which a Llama model of llama.cpp does not have")
                yield its_name, in_its_order(name, opened.get_tensor(name).float().numpy(), config)


def in_its_order(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    """The rows of queries and keys in llama.cpp's order, everything else as it is."""
    if ".q_proj." in name:
        return paired(values, config.num_attention_heads)
    if ".k_proj." in name:
        return paired(values, config.num_key_value_heads)
    return values


def paired(values: np.ndarray, heads: int) -> np.ndarray:
    """For each head of n rows the rows 0, n/2, 1, n/2 + 1, and so on: the pairs that a rotation turns."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def stored_type(values: np.ndarray, matrix_type: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    """float32 for vectors."""
    if values.ndim == 1:
        return gguf.GGMLQuantizationType.F32
    is_whole = values.shape[-1] % GROUP_SIZE == 0
    return matrix_type if is_whole else gguf.GGMLQuantizationType.BF16
