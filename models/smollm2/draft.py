"""The draft: few decoder layers between the target's frozen embeddings and some rows of them as head."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

FINAL_GAIN = 0.2
"""Of the final norm before training: with the target's own, the logits of so few layers would be far too sure."""
FORMAT_KEYS = ("architectures", "embeddings_of", "output_token_ids")
CONFIG_KEYS = (
    "attention_bias",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "pad_token_id",
    "rms_norm_eps",
    "rope_parameters",
    "tie_word_embeddings",
    "vocab_size",
)


class Draft(nn.Module):
    """Layers and norm are trained; the embeddings `[vocabulary, width]` belong to the target."""

    def __init__(self, config: LlamaConfig, embeddings: Tensor) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.model.embed_tokens = nn.Embedding(1, 1)  # never used: the target's are given to it below
        self.embeddings = embeddings

    def forward(self, token_ids: Tensor) -> Tensor:
        """Normalised hidden states `[rows, tokens, width]` of token ids padded on the right."""
        embedded = nn.functional.embedding(token_ids, self.embeddings)
        return self.model(inputs_embeds=embedded, use_cache=False).last_hidden_state

    def trained(self) -> dict[str, Tensor]:
        return {f"model.{name}": p for name, p in self.model.named_parameters() if "embed_tokens" not in name}


def draft_config(target: LlamaConfig, layers: int) -> LlamaConfig:
    """The target's shape with fewer layers."""
    fields: dict[str, Any] = target.to_dict() | {"num_hidden_layers": layers, "dtype": "bfloat16"}
    fields.pop("layer_types", None)
    return LlamaConfig(**fields)


def make_draft(target: LlamaConfig, weights: dict[str, Tensor], from_layers: list[int]) -> Draft:
    """An untrained draft that begins with these layers of the target and its final norm."""
    draft = Draft(draft_config(target, len(from_layers)), weights["model.embed_tokens.weight"].clone())
    own = draft.trained()
    with torch.no_grad():
        for name, parameter in own.items():
            source = name
            if name.startswith("model.layers."):
                index, rest = name.removeprefix("model.layers.").split(".", 1)
                source = f"model.layers.{from_layers[int(index)]}.{rest}"
            parameter.copy_(weights[source])
        draft.model.norm.weight.mul_(FINAL_GAIN)
    return draft


def save_draft(draft: Draft, output_token_ids: list[int], folder: Path) -> None:
    """bf16 safetensors without embeddings and head, and a configuration that says whose they are."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = draft.config.to_dict()
    fields = {"architectures": ["LlamaForCausalLM"], "embeddings_of": "smollm2"} | {k: whole[k] for k in CONFIG_KEYS}
    text = json.dumps(fields, indent=2, sort_keys=True)
    ids = json.dumps(sorted(output_token_ids))
    (folder / "config.json").write_text(text[: text.rindex("}")].rstrip() + f',\n  "output_token_ids": {ids}\n}}\n')
    tensors = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in draft.trained().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def load_draft(folder: Path, embeddings: Tensor) -> tuple[Draft, list[int]]:
    """A saved draft and its output token ids."""
    fields = json.loads((folder / "config.json").read_text())
    output_token_ids = fields.pop("output_token_ids")
    config = LlamaConfig(**{name: value for name, value in fields.items() if name not in FORMAT_KEYS})
    draft = Draft(config, embeddings)
    saved = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, parameter in draft.trained().items():
            parameter.copy_(saved[name])
    return draft, output_token_ids
