"""The Llama family as one compiled call per forward pass.

In a pass of a small model the products take a third of the time; operators, and Python between them, take the rest.
Here a pass is one call, whose threads meet after each phase. Each row's sums have a fixed order, so the bits of a
chain's rows depend neither on the other rows of the pass nor on how the chain was cut. A path of a tree is read as if
it were stored as a chain, so its rows have the bits of a chain's.

Weights of 16 bits stay so. A bf16 model multiplies bf16 by bf16 with float32 sums, and keeps everything between
products in float32. A float32 model with weights that are bfloat16 numbers, as most checkpoints have, multiplies them
by float32.
"""

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specpair.caches.attention import Parents, is_chain, split_parents
from specpair.caches.holding import Segment as CacheSegment
from specpair.caches.slab import Storage, Tail
from specpair.models.batch import Batch, PassOutput
from specpair.models.model_facts import ModelFacts
from specpair.models.native_memory import KeptMemory, padded
from specpair.models.native_packing import GATE_WIDTH, PANEL, NativePacker, gate_and_up, narrowest, widened
from specpair.models.native_structures import Draft, Layer, Model, Segment
from specpair.models.output_tokens import output_tokens_of
from specpair.models.weight_format import FORMATS


class NativeLlama:
    """A packed copy of a model; it does not keep `model`. `specpair.models.fusible` says which models it supports."""

    def __init__(self, model: PreTrainedModel, facts: ModelFacts, library: Any):
        self._call = library.specpair_forward
        self._call.restype = None
        self._draw_chains = library.specpair_draw_chains
        self._packer = NativePacker(model.dtype)
        self._dtype = model.dtype
        self._format = FORMATS[facts.packing]
        self._row_bytes = model.dtype.itemsize
        inner: Any = model.model
        config: Any = model.config
        head: Any = model.lm_head
        self._output_tokens = output_tokens_of(head)
        layers = (Layer * len(inner.layers))(*[self._layer(layer, facts, i) for i, layer in enumerate(inner.layers)])
        self.embedding = narrowest(inner.embed_tokens.weight.detach()).contiguous()
        """`[vocabulary, hidden]`, bf16 if that loses nothing, else float32."""
        cosine, sine = rotation(inner, facts.max_model_len)
        self._packer.hold(layers)
        self._model = Model(
            layer_count=len(inner.layers),
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            head_size=inner.layers[0].self_attn.head_dim,
            intermediate=padded(config.intermediate_size, GATE_WIDTH),
            is_bf16=self._dtype == torch.bfloat16,
            eps=config.rms_norm_eps,
            is_embedding_bf16=self.embedding.dtype == torch.bfloat16,
            embedding=self.embedding.data_ptr(),
            cosine=self._packer.pointer(cosine),
            sine=self._packer.pointer(sine),
            norm=self._packer.norm(inner.norm.weight),
            head=self._packer.product(head.weight, self._format.head, head.bias),
            layers=ctypes.addressof(layers),
        )
        own = self._model
        input_width = max(own.hidden, own.heads * own.head_size)
        projected_width = padded((own.heads + 2 * own.key_heads) * own.head_size, PANEL)
        self._memory = KeptMemory(own, self._dtype, (input_width, projected_width))
        self._address = ctypes.byref(own)

    def forward(self, batch: Batch, segments: Any, path_owners: Sequence[Tensor], longest: int) -> PassOutput:
        """The output for `batch.rows`; `segments` are those of the batch as structures, the longest of which ends at
        `longest`; they point into `path_owners`."""
        count, row_count, own = len(batch.token_ids), len(batch.rows), self._model
        told = batch.feature_rows if batch.feature_layers else ()
        numbers = array("q", [*batch.token_ids, *batch.positions, *batch.rows, *told])
        logits = torch.empty(row_count, own.head.outs)
        features, places = self._features(batch)
        memory = self._memory.of(count, row_count, longest)
        order, (first, _) = memory.order, numbers.buffer_info()
        order.segment_count = len(segments)
        order.token_ids, order.positions, order.rows = first, first + 8 * count, first + 16 * count
        order.segments = ctypes.addressof(segments)
        order.logits = logits.data_ptr()
        order.features = None if features is None else features.data_ptr()
        order.feature_places = None if places is None else places.data_ptr()
        order.feature_rows, order.feature_row_count = first + 16 * count + 8 * row_count, len(told)
        self._call(self._address, memory.address)
        return PassOutput(logits if self._output_tokens is None else self._output_tokens(logits), features)

    @property
    def output_tokens(self) -> Tensor | None:
        """The ids that the head gives `[outputs]`, ascending; None if it gives all."""
        return None if self._output_tokens is None else self._output_tokens.token_ids

    @property
    def output_count(self) -> int:
        """Logits of a row as the head gives them."""
        return self._model.head.outs

    def draw(self, draft: Draft, longest: int) -> None:
        """Draws chains, the longest of which ends at `longest`. Raises MemoryError."""
        memory = self._memory.of(draft.chain_count, draft.chain_count, longest)
        memory.order.feature_places = None
        if self._draw_chains(self._address, memory.address, ctypes.byref(draft)):
            raise MemoryError

    def _features(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Memory for the hidden states, and the place of each layer among them."""
        if not batch.feature_layers:
            return None, None
        places = torch.full((self._model.layer_count,), -1)
        for place, layer in enumerate(batch.feature_layers):
            places[layer] = place
        return torch.empty(len(batch.feature_layers), len(batch.feature_rows), self._model.hidden), places

    def _layer(self, layer: Any, facts: ModelFacts, index: int) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        bias = None if projections[0].bias is None else torch.cat([one.bias.detach() for one in projections])
        variant = facts.variants[index]
        packer, packing = self._packer, self._format.layers
        return Layer(
            attention_norm=packer.norm(layer.input_layernorm.weight),
            query_key_value=packer.product(torch.cat([one.weight.detach() for one in projections]), packing, bias),
            query_norm=packer.norm(weight_of(attention, "q_norm")),
            key_norm=packer.norm(weight_of(attention, "k_norm")),
            output=packer.product(attention.o_proj.weight, packing),
            mlp_norm=packer.norm(layer.post_attention_layernorm.weight),
            gate_up=packer.product(gate_and_up(mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()), packing),
            down=packer.product(widened(mlp.down_proj.weight.detach(), GATE_WIDTH), packing),
            scaling=variant.scaling,
            window=variant.sliding_window or 0,
        )


def weight_of(module: Any, name: str) -> Tensor | None:
    """Of a part that the module may lack."""
    part = getattr(module, name, None)
    return None if part is None else part.weight


def segments_of(batch: Batch) -> tuple[Any, list[Tensor]]:
    """The segments of the batch as structures, one for each token of a tail; and paths that they point to, which must
    stay alive."""
    parents = None if batch.parents is None else split_parents(batch.segments, batch.parents)
    made: list[Segment] = []
    paths: list[Tensor] = []
    first = 0
    for index, segment in enumerate(batch.segments):
        own_parents = None if parents is None or is_chain(parents[index]) else parents[index]
        storage: Storage = segment.holding.storage
        stack = storage.stacks[0]  # the decoder's; a head of the target has another
        place = Segment(keys=stack.keys.data_ptr(), values=stack.values.data_ptr(), capacity=stack.keys.size(2))
        if isinstance(storage, Tail):
            addresses, owners = tail_paths(segment, storage, own_parents)
            made += [on_path(place, storage.base, first + row, path) for row, path in enumerate(addresses)]
            paths += owners
        else:
            place.start, place.count, place.first = segment.start, segment.token_count, first
            if own_parents is not None:
                paths.append(tree_paths(segment, own_parents))
                place.paths = paths[-1].data_ptr()
            made.append(place)
        first += segment.token_count
    return (Segment * len(made))(*made), paths


def on_path(place: Segment, start: int, token: int, path: int) -> Segment:
    """The segment of one token of the pass, in whose place the tokens from `start` on are where the path says."""
    return Segment(
        keys=place.keys, values=place.values, capacity=place.capacity, start=start, count=1, first=token, paths=path
    )


def tail_paths(segment: CacheSegment, tail: Tail, parents: Parents | None) -> tuple[list[int], list[Tensor]]:
    """For each token of the segment the address of a path, which says where the tail's own tokens up to it are stored;
    and what these paths belong to, if it is not the tail."""
    if parents is None:
        return [tail.path_address] * segment.token_count, []
    before = torch.arange(tail.first, segment.start + tail.shift)
    rows = zip(tree_paths(segment, parents), depths_of(parents), strict=True)
    paths = [torch.cat([before, row[: depth + 1] + tail.shift]) for row, depth in rows]
    return [path.data_ptr() for path in paths], paths


def depths_of(parents: Parents) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent is None else depths[parent] + 1)
    return depths


def tree_paths(segment: CacheSegment, parents: Parents) -> Tensor:
    """`[count, count]` int64: where the segment's tokens on the path to each token are stored, the rest unused."""
    paths = np.zeros((segment.token_count, segment.token_count), dtype=np.int64)
    for row, (parent, depth) in enumerate(zip(parents, depths_of(parents), strict=True)):
        if parent is not None:
            paths[row] = paths[parent]
        paths[row, depth] = segment.start + row
    return torch.from_numpy(paths)


def rotation(inner: Any, max_model_len: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary embedding, `[positions, size / 2]`."""
    cosine, sine = inner.rotary_emb(torch.empty(0), torch.arange(max_model_len)[None])
    half = cosine.size(-1) // 2
    return cosine[0, :, :half].contiguous(), sine[0, :, :half].contiguous()
