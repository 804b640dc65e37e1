"""The runner for models that `specpair.models.native_llama` supports, with a contiguous cache."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specpair.caches.cache import KeyValueCache
from specpair.caches.contiguous_cache import ContiguousCache
from specpair.engine_config import EngineConfig
from specpair.model_info import NOT_QUANTISED
from specpair.models.batch import Batch, PassOutput
from specpair.models.chain_miss import ChainMiss
from specpair.models.chains import Chains
from specpair.models.device_defaults import has_bfloat16_tiles
from specpair.models.loading import LoadedModel
from specpair.models.native_chains import NativeChains
from specpair.models.native_coarse import BYTE_GROUP, NIBBLE_GROUP, rounded_groups
from specpair.models.native_llama import NativeLlama, segments_of
from specpair.native.library import native_library

LARGE_LAYER = 5_000_000
"""Parameters of a layer from which float32 passes of five rows were faster by FBGEMM's products than by ours, with
AVX-512."""


class NativeRunner:
    """Runs a packed copy of the model, and does not keep the model itself."""

    description = "native (compiled)"
    no_trees = ""

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        """`why_not_native` must be empty."""
        self.cache = cache
        if isinstance(cache, ContiguousCache):
            cache.makes_tails = True
        self.device = loaded.facts.device
        self._native = NativeLlama(loaded.model, loaded.facts, native_library())
        self.chains: Chains | None = NativeChains(self._native)
        self.chain_misses: Counter[ChainMiss] = Counter()

    @staticmethod
    def rounding(x: Tensor, bits: int) -> Tensor:
        """The inputs of a product with weights of 8 or 4 bits, rounded as they are here."""
        return rounded_groups(x, BYTE_GROUP if bits == 8 else NIBBLE_GROUP)

    def forward(self, batch: Batch) -> PassOutput:
        segments, paths = segments_of(batch)
        longest = max(segment.end for segment in batch.segments)
        return self._native.forward(batch, segments, paths, longest)


def why_not_native(config: EngineConfig, model: PreTrainedModel) -> str:
    """What keeps a model that is fusible from this runner; empty if nothing does."""
    if config.cache == "paged":
        return "it has no --cache paged"
    library = native_library()
    if library is None:
        return "it needs a C compiler, on Linux"
    if config.quantization != NOT_QUANTISED and not library.specpair_multiplies_bytes():
        return f"--quantization {config.quantization} needs a processor with AVX2 there"
    if config.quantization == NOT_QUANTISED and model.config.hidden_size % 2:  # 16 bits are packed by two inputs
        return f"hidden_size is {model.config.hidden_size}, and must be even"
    return ""


def is_fastest_natively(model: PreTrainedModel) -> bool:
    """Whether to prefer this runner to the fused one for weights that are not quantised.

    Not for float32 passes of wide layers on processors with AVX-512, where the fused runner's products are faster; and
    not for bf16 on processors with AMX, which those products use.
    """
    if model.dtype == torch.bfloat16:
        return not has_bfloat16_tiles()
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return True
    inner: Any = model.base_model
    layer = inner.layers[0]
    return sum(parameter.numel() for parameter in layer.parameters()) < LARGE_LAYER
