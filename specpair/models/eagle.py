"""An EAGLE-3 head for a target, before it is known by which runner the target's passes run."""

from typing import Any

import torch
from torch import Tensor

from specpair.caches.cache import LayerShape
from specpair.errors import ModelRefusedError
from specpair.model_info import NOT_QUANTISED
from specpair.models.eagle_checkpoint import EagleWeights
from specpair.models.eagle_head import EagleHead
from specpair.models.headed_runner import HeadedRunner
from specpair.models.loading import LoadedModel
from specpair.models.native_eagle import NativeEagle
from specpair.models.native_headed_runner import NativeHeadedRunner
from specpair.models.native_runner import NativeRunner
from specpair.models.plain_headed_runner import PlainHeadedRunner
from specpair.models.runner import Runner
from specpair.models.weight_format import FORMATS
from specpair.native.library import native_library

AUTO = "auto"
MOST_STEPS = 64
"""Tokens of a proposal."""


class Eagle:
    """A TargetHead."""

    def __init__(self, weights: EagleWeights, loaded: LoadedModel, quantization: str):
        """`quantization`: of the weights, if the head runs as compiled calls: a key of FORMATS, or AUTO."""
        self._weights, self._quantization = weights, quantization
        self._vocab_size = loaded.facts.vocab_size
        self._rotation = rotation(loaded, weights.settings.head_size, loaded.facts.max_model_len + MOST_STEPS)

    @property
    def shapes(self) -> tuple[LayerShape, LayerShape]:
        """What is cached for each token: keys and values of the head, and the joined features as keys."""
        settings = self._weights.settings
        attention = LayerShape(settings.key_heads, settings.head_size, settings.head_size)
        return attention, LayerShape(1, settings.width, 0)

    def runner(self, inner: Runner, layer_count: int) -> HeadedRunner:
        """Compiled calls, if the target's passes are. Raises ModelRefusedError if the weights cannot be as asked."""
        if not isinstance(inner, NativeRunner):
            if self._quantization not in (AUTO, NOT_QUANTISED):
                raise ModelRefusedError(f"--head-quantization needs compiled passes (native), not {inner.description}")
            head = EagleHead(self._weights, self._rotation, self._vocab_size)
            return PlainHeadedRunner(inner, head, layer_count, MOST_STEPS)
        library = native_library()
        assert library is not None  # the runner has it
        packing = self._packing(bool(library.specpair_multiplies_bytes()))
        compiled = NativeEagle(self._weights, self._rotation, self._vocab_size, FORMATS[packing], library)
        return NativeHeadedRunner(inner, compiled, layer_count, MOST_STEPS)

    def _packing(self, has_bytes: bool) -> str:
        """A key of FORMATS. A head only proposes, so bits that it lacks cost acceptance alone, and less of it than
        they save in time; where both its file and the target have 32 bits, it keeps what it has."""
        if self._quantization == AUTO:
            is_narrow = self._weights.is_stored_in_half or self._weights.embedding.dtype == torch.bfloat16
            return "int8" if has_bytes and is_narrow else NOT_QUANTISED
        if self._quantization != NOT_QUANTISED and not has_bytes:
            raise ModelRefusedError(f"--head-quantization {self._quantization} is not supported on this processor")
        return self._quantization


def rotation(loaded: LoadedModel, head_size: int, length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the target's rotary embedding, `[positions, size / 2]`. Raises ModelRefusedError if it has
    none."""
    inner: Any = loaded.model.base_model
    if not hasattr(inner, "rotary_emb"):
        raise ModelRefusedError(f"{loaded.facts.architecture} has no rotary embedding that a head could share")
    device = loaded.facts.device
    positions = torch.arange(length, device=device)[None]
    cosine, sine = inner.rotary_emb(torch.empty(0, device=device), positions)
    if cosine.size(-1) != head_size:
        raise ModelRefusedError(f"the head's size of {head_size} is not the target's of {cosine.size(-1)}")
    half = head_size // 2
    return cosine[0, :, :half].float().contiguous(), sine[0, :, :half].float().contiguous()
