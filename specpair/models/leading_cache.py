"""The paged cache of the leader of a group: it notes what the other ranks have to do to their slots."""

from torch import Tensor

from specpair.caches.paged_cache import PagedCache
from specpair.sharding.orders import Move


class LeadingCache(PagedCache):
    """Decides for all ranks which sequence has which blocks, and holds the keys and values of its own heads."""

    def __init__(self, *arguments: object):
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._moved: list[Move] = []

    def take_moves(self) -> list[Move]:
        """The moves since the last call, in order."""
        moved, self._moved = self._moved, []
        return moved

    def move(self, sources: Tensor, targets: Tensor) -> None:
        super().move(sources, targets)
        self._moved.append(Move(sources.tolist(), targets.tolist()))
