"""Checkpoints that carry a `quantization_config`: which formats are served, where, and how closely they are checked.

transformers reads the weights, with a package for most formats. A format that it would skip or read wrongly is refused
here, because a model with some random weights would pass every later check.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import torch

from specpair.errors import ModelRefusedError

Options = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Format:
    """What is known of one format."""

    packages: dict[str, str]
    """Name of each package it needs, and the module by which it is found."""
    refused: str = ""
    """Why no checkpoint of this format is served."""
    needs_gpu: bool = False
    keeps_type: bool = False
    """Whether products run in the type in which the checkpoint was saved, whatever is asked for."""
    rounds_inputs: Callable[[Options], bool] = lambda options: True
    """Whether products round their inputs, to few bits or to 16 of the format's choice; assumed where not known."""


def never(options: Options) -> bool:
    return False


def compresses_activations(options: Options) -> bool:
    """Of compressed-tensors, whose schemes are in groups."""
    groups = (options.get("config_groups") or {}).values()
    sides = ("input_activations", "output_activations")
    return any(not isinstance(group, dict) or any(group.get(side) for side in sides) for group in groups)


def names_activations(options: Options) -> bool:
    """Of torchao, whose types are class names."""
    return "Activation" in str(options.get("quant_type"))


ACCELERATE = {"accelerate": "accelerate"}
BITSANDBYTES = {"bitsandbytes": "bitsandbytes", **ACCELERATE}
UNREADABLE = "transformers 5 does not read its saved weights"
FORMATS = {
    "aqlm": Format(packages={"aqlm": "aqlm", **ACCELERATE}),
    "auto-round": Format(packages={"auto-round": "auto_round"}, rounds_inputs=never),
    "awq": Format(packages={"gptqmodel": "gptqmodel", **ACCELERATE}, rounds_inputs=never),
    "bitnet": Format(packages=ACCELERATE),
    "bitsandbytes_4bit": Format(packages=BITSANDBYTES, keeps_type=True),
    "bitsandbytes_8bit": Format(packages=BITSANDBYTES, keeps_type=True),
    "compressed-tensors": Format(
        packages={"compressed-tensors": "compressed_tensors"}, rounds_inputs=compresses_activations
    ),
    "eetq": Format(packages={"kernels": "kernels", **ACCELERATE}, needs_gpu=True),
    "fbgemm_fp8": Format(packages={"fbgemm-gpu": "fbgemm_gpu", **ACCELERATE}, needs_gpu=True),
    "fouroversix": Format(packages={"fouroversix": "fouroversix"}, needs_gpu=True),
    "fp8": Format(packages=ACCELERATE),
    "fp_quant": Format(packages={"fp-quant": "fp_quant"}, needs_gpu=True),
    "gemma": Format(packages={}),
    "gptq": Format(packages={"gptqmodel": "gptqmodel", "optimum": "optimum"}, rounds_inputs=never),
    "higgs": Format(packages={"flute-kernel": "flute", **ACCELERATE}, needs_gpu=True),
    "hqq": Format(packages={"hqq": "hqq"}, refused=UNREADABLE),
    "metal": Format(packages={}, refused="it runs on Apple GPUs, which are not served"),
    "mxfp4": Format(packages=ACCELERATE),
    "mxfp8": Format(packages=ACCELERATE),
    "nvfp4": Format(packages={"kernels": "kernels"}, refused=UNREADABLE),
    "quanto": Format(packages={"optimum-quanto": "optimum.quanto"}, refused=UNREADABLE),
    "quark": Format(packages={"amd-quark": "quark"}),
    "sinq": Format(packages={"sinq": "sinq"}),
    "spqr": Format(packages={"spqr-quant": "spqr_quant", **ACCELERATE}, needs_gpu=True),
    "torchao": Format(packages={"torchao": "torchao"}, keeps_type=True, rounds_inputs=names_activations),
    "vptq": Format(packages={"vptq": "vptq", **ACCELERATE}, needs_gpu=True),
}
"""By the names of transformers 5.23."""


@dataclass(frozen=True, kw_only=True)
class QuantizedCheckpoint:
    """What a checkpoint says of its quantisation."""

    name: str
    """Of the format."""
    options: Options
    """Its `quantization_config`."""

    @classmethod
    def of(cls, settings: Any) -> Self | None:
        """That of a model's configuration; None if it is not quantised."""
        options: Options | None = getattr(settings, "quantization_config", None)
        options = options or getattr(settings.get_text_config(), "quantization_config", None)
        return None if options is None else cls(name=format_name(options), options=options)

    @property
    def format(self) -> Format:
        """Raises ModelRefusedError for a format that transformers does not know, and would read as if it were none."""
        if self.name not in FORMATS:
            raise ModelRefusedError(f"its quantisation format {self.name or 'has no name and'} is not known")
        return FORMATS[self.name]

    @property
    def is_coarse(self) -> bool:
        """Whether a difference in the last bit of a product's input can become one of the format's rounding."""
        return self.format.rounds_inputs(self.options)

    def refuse_unserved(self, device: torch.device) -> None:
        """Raises ModelRefusedError if the format cannot be served on `device`, or one of its packages is missing."""
        served = self.format
        if served.refused:
            raise ModelRefusedError(f"{self.name} checkpoints are not served: {served.refused}")
        if served.needs_gpu and device.type == "cpu":
            raise ModelRefusedError(f"{self.name} checkpoints need a GPU; the device is {device}")
        if missing := [package for package, module in served.packages.items() if not is_installed(module)]:
            raise ModelRefusedError(f"{self.name} checkpoints need a package: pip install {' '.join(missing)}")
        if self.options.get("kv_cache_scheme"):
            raise ModelRefusedError(f"this {self.name} checkpoint quantises keys and values, which is not served")

    def choose_dtype(self, wanted: str, stored: torch.dtype, default: torch.dtype) -> torch.dtype:
        """The type of what is not quantised. Raises ModelRefusedError if the format has another type than `wanted`."""
        if not self.format.keeps_type:
            return default
        if wanted != "auto" and getattr(torch, wanted) != stored:
            name = str(stored).removeprefix("torch.")
            raise ModelRefusedError(f"--dtype is {wanted}, but this {self.name} checkpoint computes in {name}")
        return stored

    def prepare(self) -> None:
        """Before the weights are read: asks for ordinary weights where nothing but the weights is compressed, as their
        products are the same and the fused runner can have them, and silences a warning of each single product."""
        if self.name == "compressed-tensors" and not self.is_coarse:
            self.options["dequantize"] = True
        if self.name == "bitsandbytes_8bit":
            logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)


def format_name(options: Options) -> str:
    """Of a `quantization_config`, as transformers chooses it; empty if it has none."""
    if options.get("load_in_8bit") or options.get("load_in_4bit"):
        return "bitsandbytes_4bit" if options.get("load_in_4bit") else "bitsandbytes_8bit"
    return str(options.get("quant_method") or "")


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains it
        return False
