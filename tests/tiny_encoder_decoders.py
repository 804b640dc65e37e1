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

SHARPNESS = {"t5": 100.0, "mt5": 10.0, "bart": 100.0}
"""How much larger than usual the decoder's last norm is: it makes choices definite."""
SPREAD = 4.0
"""How much larger than usual all other matrices are: they spread what comes of different inputs."""
SMALL = 0.05
"""How large the embeddings are. They are also the head: if they were not small, each token would follow itself."""

CONFIGS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "t5": (hf.T5Config, T5_SHAPE),
    "mt5": (hf.MT5Config, {**T5_SHAPE, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": (hf.BartConfig, BART_SHAPE),
}


def make_encoder_decoder(
    folder: Path, kind: str = "t5", *, seed: int = 0, vocab_size: int = 64, **changes: Any
) -> Path:
    """Saves a random model of `kind` to `folder` and returns it."""
    config_class, settings = CONFIGS[kind]
    torch.manual_seed(seed)
    model: Any = hf.AutoModelForSeq2SeqLM.from_config(config_class(**{**settings, "vocab_size": vocab_size, **changes}))
    decoder, embeddings = model.get_decoder(), model.get_input_embeddings().weight
    last = decoder.layers[-1].final_layer_norm if kind == "bart" else decoder.final_layer_norm
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter is not embeddings:
                parameter.mul_(SPREAD)
        embeddings.mul_(SMALL)
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
def generate_greedily(model: Any, encoder_ids: list[int], count: int, **options: Any) -> list[int]:
    """What `transformers` generate gives."""
    ids = torch.tensor([encoder_ids])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, **options)
    return output[0, 1:].tolist()


class Conditioned:
    """A model with its encoder's input, as a model of the decoder's tokens alone: for `tests.reference`."""

    def __init__(self, model: Any, encoder_ids: list[int]):
        self._model = model
        self._encoder_ids = torch.tensor([encoder_ids])

    def __call__(self, *, input_ids: torch.Tensor) -> Any:
        return self._model(input_ids=self._encoder_ids, decoder_input_ids=input_ids)
