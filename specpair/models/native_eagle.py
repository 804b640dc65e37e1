"""The arithmetic of an EAGLE-3 head as compiled calls, as `specpair.models.eagle_head` has it in operators of torch.

Passes of the head are small, so operators take longer than their products. Keys, values and joined features are read
and written where the target's contiguous cache has them.
"""

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specpair.caches.contiguous_cache import Slab, Stack
from specpair.models.batch import Batch
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.eagle_checkpoint import LAYER, EagleWeights
from specpair.models.native_chain_rows import NativeChainRows
from specpair.models.native_memory import KeptMemory, padded
from specpair.models.native_packing import GATE_WIDTH, PANEL, NativePacker, gate_and_up, widened
from specpair.models.native_structures import Eagle, Layer, Model, Segment
from specpair.models.native_tree_rows import NativeTreeRows
from specpair.models.weight_format import WeightFormat
from specpair.speculation.trees.ranked_growth import GrowthLimits
from specpair.speculation.trees.token_tree import TokenTree


class NativeEagle:
    """A packed copy of the head's weights, without any state of sequences."""

    def __init__(
        self,
        weights: EagleWeights,
        rotation: tuple[Tensor, Tensor],
        vocab_size: int,
        weight_format: WeightFormat,
        library: Any,
    ):
        """`rotation`: cosine and sine `[positions, size / 2]`."""
        settings = weights.settings
        self.settings, self.dtype = settings, weights.embedding.dtype
        self.feature_layers = weights.feature_layers
        self._step, self._keep = library.specpair_head_step, library.specpair_head_keep
        self._step.restype = self._keep.restype = None
        self._draw = library.specpair_head_chains
        self._grow = library.specpair_head_trees
        self._draw.restype = self._grow.restype = ctypes.c_int64
        self._packer = NativePacker(self.dtype)
        self.outputs, self.vocab_size = weights.outputs(vocab_size), vocab_size
        self._head = self._packed(weights, rotation, weight_format)
        decoder = self._head.decoder
        self._tap_width = self._head.tap_count * self._head.tap_size
        input_width = max(2 * decoder.hidden, decoder.heads * decoder.head_size, self._tap_width)
        projected_width = padded((decoder.heads + 2 * decoder.key_heads) * decoder.head_size, PANEL)
        self._memory = KeptMemory(decoder, self.dtype, (input_width, projected_width))
        self._address = ctypes.byref(self._head)

    def keep(self, batch: Batch, features: Tensor, attention: int, joined: int) -> None:
        """Stores what the head needs of the tokens of a pass, from the target's features `[taps, tokens, hidden]`: the
        keys and values of their pairs as layer `attention` of the cache, and their joined features as layer `joined`.
        """
        count = len(batch.token_ids)
        memory = self._memory.of(count, 0, 0)
        segments, first = (Segment * len(batch.segments))(), 0
        stored = array("q")
        for made, segment in zip(segments, batch.segments, strict=True):
            slab = segment.holding.storage
            self.locate(made, slab, attention)
            made.start, made.count, made.first = segment.start, segment.token_count, first
            stored.append(keys_of(slab, joined)[1])
            first += segment.token_count
        features = features.contiguous()
        numbers = array("q", [*batch.token_ids, *batch.positions, *places_before(batch)])
        gathered, hidden = torch.empty(count, self._tap_width), torch.empty(count, self._head.decoder.hidden)
        order, (address, _) = memory.order, numbers.buffer_info()
        order.token_ids, order.positions = address, address + 8 * count
        order.segments, order.segment_count = ctypes.addressof(segments), len(segments)
        self._keep(
            self._address,
            memory.address,
            ctypes.c_void_p(features.data_ptr()),
            ctypes.c_void_p(stored.buffer_info()[0]),
            ctypes.c_void_p(address + 16 * count),
            ctypes.c_void_p(gathered.data_ptr()),
            ctypes.c_void_p(hidden.data_ptr()),
        )

    def step(
        self, token_ids: Sequence[int], positions: Sequence[int], segments: Any, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The hidden states `[tokens, width]` that the next step is given, and the logits `[tokens, outputs]`, from
        those of the tokens before. `segments` say where each token's keys are, and its own is to be stored; `locate`
        makes them."""
        count = len(token_ids)
        numbers = array("q", [*token_ids, *positions, *range(count)])
        left, logits = torch.empty_like(hidden), torch.empty(count, self._head.decoder.head.outs)
        memory = self._memory.of(count, count, max(positions) + 1)
        order, (address, _) = memory.order, numbers.buffer_info()
        order.token_ids, order.positions, order.rows = address, address + 8 * count, address + 16 * count
        order.segments, order.segment_count = ctypes.addressof(segments), len(segments)
        order.logits = logits.data_ptr()
        self._step(self._address, memory.address, ctypes.c_void_p(hidden.data_ptr()), ctypes.c_void_p(left.data_ptr()))
        return left, logits

    def draw(
        self, token_ids: Sequence[int], chains: Sequence[ChainRow], begin: Any, hidden: Tensor
    ) -> list[DrawnChain]:
        """Whole proposals, one for each chain, from the tokens before their first ones and the hidden states
        `[chains, width]` of those before them. `begin` are the segments of these tokens, as for a step; a path goes on
        for all tokens of its chain but the last. Raises MemoryError."""
        ids = None if self.outputs is None else self.outputs.token_ids
        rows = NativeChainRows(chains, self._head.decoder.head.outs, ids)
        numbers = array("q", token_ids)
        memory = self._memory.of(len(chains), len(chains), rows.longest)
        if self._draw(
            self._address,
            memory.address,
            ctypes.byref(rows.draft),
            ctypes.byref(begin),
            ctypes.c_void_p(numbers.buffer_info()[0]),
            ctypes.c_void_p(hidden.data_ptr()),
        ):
            raise MemoryError
        return rows.drawn()

    def grow(self, trees: NativeTreeRows, begin: Any, hidden: Tensor) -> list[TokenTree]:
        """Grows each tree, from the hidden states `[trees, width]` of the tokens before their last committed ones.
        `begin` has a segment for each, as `step` takes them. Raises MemoryError."""
        count = len(trees.structures)
        memory = self._memory.of(count * GrowthLimits.max_frontier, count * GrowthLimits.max_frontier, trees.longest)
        if self._grow(
            self._address,
            memory.address,
            ctypes.byref(trees.structures),
            ctypes.c_int64(count),
            ctypes.c_void_p(None if self.outputs is None else self.outputs.token_ids.data_ptr()),
            ctypes.byref(begin),
            ctypes.c_void_p(hidden.data_ptr()),
        ):
            raise MemoryError
        return trees.grown()

    def locate(self, made: Segment, slab: Slab, layer: int) -> None:
        """Has a segment point to the keys and values of a sequence."""
        stack, made.keys = keys_of(slab, layer)
        index = stack.layers.index(layer)
        made.values = stack.values.data_ptr() + index * stack.values.stride(0) * stack.values.itemsize
        made.capacity = stack.keys.size(2)

    def _packed(self, weights: EagleWeights, rotation: tuple[Tensor, Tensor], weight_format: WeightFormat) -> Eagle:
        settings, packer, packing = weights.settings, self._packer, weight_format.layers
        norms = {name: packer.norm(tensor) for name, tensor in weights.tensors.items() if tensor.ndim == 1}
        projections = torch.cat([weights[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkv"])
        gate, up = (weights[f"{LAYER}mlp.{name}_proj.weight"] for name in ("gate", "up"))
        query_width = settings.heads * settings.head_size
        layer = Layer(
            attention_norm=norms[f"{LAYER}input_layernorm.weight"],
            query_key_value=packer.product(projections, packing),
            output=packer.product(weights[f"{LAYER}self_attn.o_proj.weight"], packing),
            mlp_norm=norms[f"{LAYER}post_attention_layernorm.weight"],
            gate_up=packer.product(gate_and_up(gate, up), packing),
            down=packer.product(widened(weights[f"{LAYER}mlp.down_proj.weight"], GATE_WIDTH), packing),
            scaling=settings.head_size**-0.5,
        )
        packer.hold(layer)
        embedding = weights.embedding.contiguous()  # the target's own, where it lends it
        packer.hold(embedding)
        decoder = Model(
            layer_count=1,
            hidden=settings.width,
            heads=settings.heads,
            key_heads=settings.key_heads,
            head_size=settings.head_size,
            intermediate=padded(len(gate), GATE_WIDTH),
            is_bf16=self.dtype == torch.bfloat16,
            eps=settings.eps,
            is_embedding_bf16=embedding.dtype == torch.bfloat16,
            embedding=embedding.data_ptr(),
            cosine=packer.pointer(rotation[0]),
            sine=packer.pointer(rotation[1]),
            norm=norms["norm.weight"],
            head=packer.product(weights.output, weight_format.head),
            layers=ctypes.addressof(layer),
            first_key=1,  # position 0 has no pair
        )
        norms_of_taps = range(len(weights.feature_layers) if settings.normalises_each_feature else 0)
        tap_norms = [weights[f"fc_norm.{index}.weight"] for index in norms_of_taps]
        start = query_width // PANEL * PANEL
        return Eagle(
            decoder=decoder,
            pair_norm=norms[f"{LAYER}hidden_norm.weight"],
            normalises_residual=settings.normalises_residual,
            feeds_back_normalised=settings.feeds_back_normalised,
            tap_count=len(weights.feature_layers),
            tap_size=weights["fc.weight"].size(1) // len(weights.feature_layers),
            join=packer.product(weights["fc.weight"], packing),
            tap_norms=packer.norm(torch.cat(tap_norms)) if tap_norms else None,
            joined_norm=norms.get("input_norm.weight"),
            key_value=packer.product(projections[start:], packing),
            key_value_start=start,
        )


def keys_of(slab: Slab, layer: int) -> tuple[Stack, int]:
    """The stack of a layer, and the address of the layer's keys in it."""
    stack = next(stack for stack in slab.stacks if layer in stack.layers)
    keys = stack.keys
    return stack, keys.data_ptr() + stack.layers.index(layer) * keys.stride(0) * keys.itemsize


def places_before(batch: Batch) -> list[int]:
    """Where the token before each token is stored in its sequence; -1 for the first of a sequence."""
    if batch.parents is None:
        return [position - 1 for position in batch.positions]
    places, first = [], 0
    for segment in batch.segments:
        for parent in batch.parents[first : first + segment.token_count]:
            places.append(segment.start - 1 if parent is None else segment.start + parent - first)
        first += segment.token_count
    return places
