"""All drafts."""

from coordinator.peers.draft_link import DraftLink
from coordinator.peers.pool import Pool
from specpair.model_info import ModelInfo
from specpair.options import Drafter


class Drafts(Pool[DraftLink]):
    """All drafts. They need not be alike: each is compared with the target by itself."""

    @property
    def info(self) -> ModelInfo | None:
        """Of the first one that was checked; None while there is none."""
        return next(iter(self._infos()), None)

    @property
    def own_drafter(self) -> Drafter | None:
        """What proposes unless a request says otherwise, as far as that is known."""
        info = self.info
        return info.drafters[0] if info is not None and info.drafters else None
