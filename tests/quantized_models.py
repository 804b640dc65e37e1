"""Tiny checkpoints in transformers' quantisation formats: a plain model with its projections rounded.

Formats of torch's own types are written by hand; for bitsandbytes and torchao the package itself writes them.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]
Settings = dict[str, Any]
GROUP = 32
"""Weights that share a scale; formats with groups need widths of a multiple."""
WEIGHTS = "model.safetensors"
SHAPE: Settings = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
"""Of the plain model."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def as_fp8(weight: Tensor) -> Tensors:
    """A scale for each block of 32 by 32, as DeepSeek has it for 128 by 128."""
    blocks = weight.view(weight.size(0) // GROUP, GROUP, -1, GROUP)
    scales = blocks.abs().amax((1, 3)) / 448
    scaled = (blocks / scales[:, None, :, None]).view_as(weight)
    return {"weight": scaled.to(torch.float8_e4m3fn), "weight_scale_inv": scales}


def by_channel(weight: Tensor, largest: float, dtype: torch.dtype) -> Tensors:
    """A scale for each output, as compressed-tensors stores 8 bits."""
    scales = weight.abs().amax(1, keepdim=True) / largest
    scaled = weight / scales
    return {"weight": (scaled.round() if dtype == torch.int8 else scaled).to(dtype), "weight_scale": scales}


def four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers from 0 to 15 for -8 to 7, and a scale for each output and group."""
    groups = weight.view(len(weight), -1, GROUP)
    scales = groups.abs().amax(-1) / 7
    return ((groups / scales[..., None]).round().clamp(-8, 7) + 8).view_as(weight).long(), scales


def eight_in_one(numbers: Tensor, dimension: int, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Eight numbers of four bits in each int32, the first in the lowest."""
    parts = numbers.unflatten(dimension, (-1, 8)).unbind(dimension % numbers.dim() + 1)
    packed = sum(parts[index].long() << (4 * place) for place, index in enumerate(order))
    return ((torch.as_tensor(packed) + 2**31) % 2**32 - 2**31).int()


def as_packed(weight: Tensor) -> Tensors:
    numbers, scales = four_bits(weight)
    shape = torch.tensor(weight.shape)
    return {"weight_packed": eight_in_one(numbers, -1), "weight_scale": scales, "weight_shape": shape}


def as_gptq(weight: Tensor) -> Tensors:
    """Its zero points are stored less one."""
    numbers, scales = four_bits(weight)
    zeros = torch.full_like(scales.T, 7)
    tensors = {"qweight": eight_in_one(numbers.T, 0), "qzeros": eight_in_one(zeros, 1), "scales": scales.T.half()}
    return {**tensors, "g_idx": torch.arange(weight.size(1)).int() // GROUP}


def as_auto_round(weight: Tensor) -> Tensors:
    return {name: tensor for name, tensor in as_gptq(weight).items() if name != "g_idx"}


def as_awq(weight: Tensor) -> Tensors:
    numbers, scales = four_bits(weight)
    zeros = torch.full_like(scales.T, 8)
    packed = {"qweight": eight_in_one(numbers.T, 1, AWQ_ORDER), "qzeros": eight_in_one(zeros, 1, AWQ_ORDER)}
    return {**packed, "scales": scales.T.half()}


def compressed(kind: str, bits: int, name: str, inputs: Settings | None = None, **weights: Any) -> Settings:
    """The settings of compressed-tensors."""
    scheme = {"num_bits": bits, "type": kind, "symmetric": True, **weights}
    group = {"targets": ["Linear"], "weights": scheme, "input_activations": inputs, "format": name}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "format": name,
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }


def by_token(kind: str) -> Settings:
    return {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "token", "dynamic": True}


WRITTEN: dict[str, tuple[Settings, Callable[[Tensor], Tensors]]] = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [GROUP, GROUP], "activation_scheme": "dynamic"}, as_fp8),
    "int8 compressed": (
        compressed("int", 8, "int-quantized", by_token("int"), strategy="channel"),
        lambda weight: by_channel(weight, 127, torch.int8),
    ),
    "fp8 compressed": (
        compressed("float", 8, "float-quantized", by_token("float"), strategy="channel"),
        lambda weight: by_channel(weight, 448, torch.float8_e4m3fn),
    ),
    "int4 compressed": (compressed("int", 4, "pack-quantized", strategy="group", group_size=GROUP), as_packed),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}, as_gptq),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, as_awq),
    "auto-round": (
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": GROUP,
            "sym": True,
            "data_type": "int",
            "packing_format": "auto_round:auto_gptq",
        },
        as_auto_round,
    ),
}
"""By a name of ours: the settings, and the tensors that take the place of a projection's weight."""


def write_quantized(folder: Path, plain: Path, kind: str) -> Path:
    """Saves the model in `plain` to `folder`, quantised as `kind` of WRITTEN says."""
    settings, quantize = WRITTEN[kind]
    shutil.copytree(plain, folder)
    change_settings(folder, quantization_config=settings)
    tensors: Tensors = {}
    for name, weight in load_file(plain / WEIGHTS).items():
        if name.endswith("_proj.weight"):
            parts = quantize(weight)
            tensors |= {name.removesuffix("weight") + part: tensor.contiguous() for part, tensor in parts.items()}
        else:
            tensors[name] = weight
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def change_settings(folder: Path, **changes: Any) -> None:
    """Of the model's configuration."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def save_quantized(folder: Path, plain: Path, settings: Any) -> Path:
    """Saves the model in `plain` to `folder`, quantised by the package of `settings`."""
    model = hf.AutoModelForCausalLM.from_pretrained(plain, quantization_config=settings, device_map="cpu")
    model.save_pretrained(folder)
    return folder
