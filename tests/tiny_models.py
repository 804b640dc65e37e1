"""Tiny random models of many architectures, made on the spot and served like any other."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
# Without these the generation config would look for tokens that a tiny vocabulary does not have.
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}

CONFIGS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "llama": (hf.LlamaConfig, SHAPE),
    "qwen2": (hf.Qwen2Config, SHAPE),
    "qwen2_sliding": (
        hf.Qwen2Config,
        {**SHAPE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": (hf.Qwen3Config, {**SHAPE, "head_dim": 8}),
    "mistral": (hf.MistralConfig, {**SHAPE, "sliding_window": 8}),
    "gemma2": (hf.Gemma2Config, {**SHAPE, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}),
    "gemma3": (hf.Gemma3TextConfig, {**SHAPE, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}),
    "gpt2": (hf.GPT2Config, {"n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt_neox": (hf.GPTNeoXConfig, SHAPE),
    "opt": (hf.OPTConfig, {**SHAPE, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "phi": (hf.PhiConfig, SHAPE),
    "phi3": (hf.Phi3Config, SHAPE),
    "starcoder2": (hf.Starcoder2Config, SHAPE),
}


def make_model(folder: Path, kind: str = "llama", *, seed: int = 0, vocab_size: int = 64, **changes: Any) -> Path:
    """Saves a random model of `kind` to `folder` and returns it. Spread-out weights make its choices definite."""
    config_class, settings = CONFIGS[kind]
    config = config_class(**{**settings, **NO_TOKENS, "vocab_size": vocab_size, "initializer_range": 0.2, **changes})
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return folder


def load_plain(folder: Path) -> Any:
    """The model as transformers runs it, in float32 with eager attention: the reference."""
    return hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def generate_greedily(model: Any, prompt: list[int], count: int) -> list[int]:
    """What `transformers` generate gives."""
    ids = torch.tensor([prompt])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist()


def make_variation(folder: Path, source: Path, *, spread: float, seed: int = 0) -> Path:
    """Saves a model like that in `source`, its weights moved by normal noise: a draft that often agrees with it."""
    model = load_plain(source)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread * parameter.std())
    model.save_pretrained(folder)
    return folder
