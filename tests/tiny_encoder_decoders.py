"""Tiny random encoder-decoder models, made on the spot and served like any other."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf

T5_SHAPE = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": None,
}
BART_SHAPE = {
    "d_model": 32,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "init_std": 0.2,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
    "forced_eos_token_id": None,
}

SHARPNESS = {"t5": 80.0, "mt5": 15.0, "bart": 60.0}
"""How much larger than usual the decoder's last norm is: it makes choices definite."""

CONFIGS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "t5": (hf.T5Config, T5_SHAPE),
    "mt5": (hf.MT5Config, {**T5_SHAPE, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": (hf.BartConfig, BART_SHAPE),
}


def make_encoder_decoder(
    folder: Path, kind: str = "t5", *, seed: int = 0, vocab_size: int = 64, **changes: Any
) -> Path:
    """Saves a random model of `kind` to `folder` and returns it.

    Its embeddings, which are also its head, are small: otherwise each token would be followed by itself.
    """
    config_class, settings = CONFIGS[kind]
    torch.manual_seed(seed)
    model: Any = hf.AutoModelForSeq2SeqLM.from_config(config_class(**{**settings, "vocab_size": vocab_size, **changes}))
    decoder = model.get_decoder()
    last = decoder.final_layer_norm if kind in ("t5", "mt5") else decoder.layers[-1].final_layer_norm
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.05)
        last.weight.mul_(SHARPNESS[kind])
    model.save_pretrained(folder)
    return folder


def load_plain(folder: Path) -> Any:
    """The model as transformers runs it, in float32 with eager attention: the reference."""
    return hf.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make_variation(folder: Path, source: Path, *, spread: float, seed: int = 0) -> Path:
    """Saves a model like that in `source`, its weights moved by normal noise: a draft that often agrees with it."""
    model = load_plain(source)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread * parameter.std(correction=0))
    model.save_pretrained(folder)
    return folder


@torch.inference_mode()
def generate_greedily(model: Any, encoder_ids: list[int], count: int) -> list[int]:
    """What `transformers` generate gives."""
    ids = torch.tensor([encoder_ids])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return output[0, 1:].tolist()
