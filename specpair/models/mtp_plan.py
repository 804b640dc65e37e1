"""How the tokens of a multi-token prediction layer attend: the first positions of a sequence have nothing in it.

The layer at a depth has for the token at a position a pair with the state of the token before, so depth d begins at
position d + 1. What is stored for the positions before is never seen, but each of these tokens sees itself, so that its
row is finite.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specpair.caches.attention import Masks, Parents, Variant, attend
from specpair.caches.holding import Segment
from specpair.caches.plan import CacheAccess, CachePlan


class StoringPlan(CachePlan):
    """Stores keys and values of all tokens of a pass as further layers of the cache, and attends to them."""

    def __init__(
        self,
        access: CacheAccess,
        segments: Sequence[Segment],
        parents: Parents | None,
        device: torch.device,
        first_layer: int,
    ):
        """The layer at depth d is the cache's at `first_layer` + d."""
        self._access, self._segments, self._first_layer = access, segments, first_layer
        self._masks = Masks(segments, parents, device)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        self._access.write(self._first_layer + layer, keys, values)
        outputs: list[Tensor] = []
        for index, part in enumerate(query.split([segment.token_count for segment in self._segments], 1)):
            held = self._access.read(self._first_layer + layer, index)
            start = self._segments[index].start
            seen = self._masks.of(index, variant.sliding_window, 1)
            outputs.append(attend_late(part, *held, seen, start, 1 + layer, variant))
        return torch.cat(outputs, dim=1)


class DraftingPlan(CachePlan):
    """Attends to what is stored of several sequences, and to the tokens of a draft, which are stored nowhere."""

    def __init__(self, held: list[tuple[Tensor, Tensor]], count: int):
        """`held` are keys and values `[key heads, fed tokens, size]` of each sequence, whose `count` tokens follow."""
        self._held, self._count = held, count

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, variant: Variant) -> Tensor:
        outputs: list[Tensor] = []
        for index, (old_keys, old_values) in enumerate(self._held):
            own = slice(index * self._count, (index + 1) * self._count)
            all_keys, all_values = torch.cat([old_keys, keys[:, own]], 1), torch.cat([old_values, values[:, own]], 1)
            length = old_keys.size(1)
            rows = torch.arange(length, length + self._count, device=query.device)[:, None]
            columns = torch.arange(length + self._count, device=query.device)[None]
            seen = columns <= rows
            if variant.sliding_window is not None:
                seen &= columns > rows - variant.sliding_window
            outputs.append(attend_late(query[:, own], all_keys, all_values, seen, length, 1 + layer, variant))
        return torch.cat(outputs, dim=1)


def attend_late(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None, start: int, first: int, variant: Variant
) -> Tensor:
    """`[heads, tokens, size]` of tokens from `start` on that see `seen` `[tokens, keys]`, but nothing before `first`
    except themselves."""
    count, length = query.size(1), keys.size(1)
    columns = torch.arange(length, device=query.device)
    own = columns[None] == torch.arange(start, start + count, device=query.device)[:, None]
    late = columns[None] >= first
    mask = (late if seen is None else seen & late) | own
    return attend(query, keys, values, mask.repeat(query.size(0) // keys.size(0), 1), variant)
