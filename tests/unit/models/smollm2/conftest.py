"""A tiny Llama in the place of SmolLM2, and a tokenizer that is none."""

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

Tiny = tuple[LlamaConfig, dict[str, Tensor]]


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """Configuration and bf16 weights of a Llama of two layers with 96 tokens."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        dtype="bfloat16",
    )
    weights = LlamaForCausalLM(config).state_dict()
    return config, {name: value.to(torch.bfloat16) for name, value in weights.items()}
