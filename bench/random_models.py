"""Small models with random weights, for measurements in which the text does not matter.

Their distributions are about as spread out as those of the bundled pair, whose rows reach the limit of sent tokens.
Draft and target agree in a third of the tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import log, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

ENTROPY = 3.0
"""Entropy of a distribution in nats, a little less than the bundled draft's."""
AGREEMENT = 0.9
"""Correlation of the output weights of draft and target."""
CONTEXT = 4096


class RandomPair(NamedTuple):
    """Folders without tokenizers: prompts are token ids."""

    target: Path
    draft: Path


@contextmanager
def random_pair(vocab_size: int, *, hidden_size: int = 32, layers: int = 1) -> Iterator[RandomPair]:
    """A pair on disk, deleted after use."""
    with TemporaryDirectory() as folder:
        pair = RandomPair(Path(folder, "target"), Path(folder, "draft"))
        model = random_model(vocab_size, hidden_size, layers)
        save(model, pair.target)
        disturb(model.lm_head.weight)
        save(model, pair.draft)
        yield pair


def save(model: Any, folder: Path) -> None:
    logging.disable_progress_bar()
    model.save_pretrained(folder)


def random_model(vocab_size: int, hidden_size: int, layers: int) -> LlamaForCausalLM:
    """A Llama whose logits are about normal, with the spread that gives ENTROPY.

    The entropy of a softmax over V normal logits of spread s is log V - s^2 / 2 while that is above zero (Derrida's
    random energy model).
    """
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config)
    spread = sqrt(2 * (log(vocab_size) - ENTROPY))
    with torch.no_grad():
        model.lm_head.weight.normal_(std=spread / sqrt(hidden_size))  # its input is normed to the length sqrt(hidden)
    return model


def disturb(weight: torch.Tensor) -> None:
    """Mixes in noise of the same spread; the correlation with the old weights is AGREEMENT."""
    with torch.no_grad():
        noise = torch.randn_like(weight) * weight.std() * sqrt(1 - AGREEMENT**2)
        weight.mul_(AGREEMENT).add_(noise)


class Shape(NamedTuple):
    """The sizes of a Llama."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    is_tied: bool


SHAPES = {
    "tiny": Shape(64, 128, 2, 4, 2, 256, True),
    "llama-3.2-1b": Shape(2048, 8192, 16, 32, 8, 128_256, True),
    "llama-3.2-3b": Shape(3072, 8192, 28, 24, 8, 128_256, True),
    "8b": Shape(4096, 14_336, 32, 32, 8, 128_256, False),
}


def random_shape(name: str, folder: Path, device: torch.device, dtype: str) -> int:
    """Writes a model of this shape, made on the device. Returns the bytes of the weights that every pass reads."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=shape.is_tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with device:
            model: Any = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    save(model, folder)
    looked_up = 0 if shape.is_tied else model.model.embed_tokens.weight.nbytes
    return sum(parameter.nbytes for parameter in model.parameters()) - looked_up
