"""A model without weights, as it was before it was quantised."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel


def make_skeleton(settings: Any) -> PreTrainedModel:
    """By the model's configuration, on torch's device `meta`."""
    plain = deepcopy(settings)
    for part in (plain, plain.get_text_config()):
        vars(part).pop("quantization_config", None)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(plain, trust_remote_code=False)


def product_widths(skeleton: PreTrainedModel) -> dict[str, int]:
    """The input width of each linear layer by its name."""
    return {name: module.in_features for name, module in skeleton.named_modules() if isinstance(module, nn.Linear)}
