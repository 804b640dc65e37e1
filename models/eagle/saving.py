"""A head as files, in the layout of `vllm-project/speculators`."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.eagle.head import Head, HeadConfig

VERIFIER = "HuggingFaceTB/SmolLM2-135M-Instruct"


def save_head(head: Head, output_token_ids: list[int], vocab_size: int, folder: Path) -> None:
    """bf16 safetensors without embeddings and output head, which are the target's, and the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = configuration(head.config, len(output_token_ids), vocab_size)
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    tensors = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in head.trained().items()}
    ids = torch.tensor(sorted(output_token_ids))
    given = torch.zeros(vocab_size, dtype=torch.bool)
    given[ids] = True
    tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": given}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def configuration(config: HeadConfig, outputs: int, vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": outputs,
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": list(config.features),
        "embed_requires_grad": False,
        "fc_norm": True,
        "norm_before_fc": False,
        "norm_before_residual": True,
        "norm_output": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": VERIFIER},
        },
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {
            "attention_bias": False,
            "head_dim": config.head_size,
            "hidden_act": "silu",
            "hidden_size": config.width,
            "intermediate_size": config.feed_forward,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": config.heads,
            "num_hidden_layers": 1,
            "num_key_value_heads": config.key_heads,
            "rms_norm_eps": config.eps,
            "rope_theta": config.theta,
            "vocab_size": vocab_size,
        },
    }


def load_head(folder: Path, embeddings: Tensor) -> tuple[Head, list[int]]:
    """A saved head and its output token ids."""
    fields = json.loads((folder / "config.json").read_text())
    layer = fields["transformer_layer_config"]
    config = HeadConfig(
        width=layer["hidden_size"],
        feed_forward=layer["intermediate_size"],
        heads=layer["num_attention_heads"],
        key_heads=layer["num_key_value_heads"],
        head_size=layer["head_dim"],
        features=tuple(fields["eagle_aux_hidden_state_layer_ids"]),
        theta=layer["rope_theta"],
        eps=layer["rms_norm_eps"],
    )
    head, saved = Head(config, embeddings), load_file(folder / "model.safetensors")
    offsets = saved["d2t"]
    with torch.no_grad():
        for name, parameter in head.trained().items():
            parameter.copy_(saved[name])
    return head, (offsets + torch.arange(len(offsets))).tolist()
