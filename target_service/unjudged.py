"""Works whose pass was over before the distributions of their proposals had come."""

import logging
from weakref import WeakSet

import torch
from torch import Tensor

from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import check_device
from specpair.errors import ForwardFailedError, NotFiniteError
from specpair.speculation.counted_rows import SentRows
from specpair.speculation.sampling import finite_rows
from target_service.judging import advance_verification
from target_service.late_rows import WithdrawnError
from target_service.verify_work import VerifyWork

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024 * 1024
"""Of all logits that are kept: beyond it steps count as not taken. 5 tokens of 152,000 ids have 3.6 MB."""


class UnjudgedWorks:
    """Keeps their logits until they can be judged. Device thread only."""

    def __init__(self) -> None:
        self._works = WeakSet[VerifyWork]()
        """Those that are dropped leave by themselves."""

    @property
    def byte_count(self) -> int:
        return sum(work.unjudged.nbytes for work in self._works if work.unjudged is not None)

    def take_out(self, works: list[VerifyWork], logits: Tensor) -> tuple[list[VerifyWork], Tensor] | None:
        """The works whose distributions are here, with their logits `[sum of (K + 1), vocabulary]`; None if there are
        none. The others are done without a verdict."""
        waiting = [work for work in works if not take_rows(work)]
        if not waiting:
            return (works, logits) if works else None
        parts = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
        for work in waiting:
            self._keep(work, parts.pop(work))
        return (list(parts), torch.cat(list(parts.values()))) if parts else None

    def judge(self, work: VerifyWork, rows: SentRows) -> None:
        """Judges a work by the distributions that have come for it."""
        assert work.unjudged is not None
        logits, work.unjudged, work.done = work.unjudged, None, False
        work.take_rows(rows)
        try:
            advance_verification([work], logits)
        except Exception as error:
            check_device(error)
            log.exception("judging a proposal whose distributions came late failed")
            work.sequence.is_suspect = True
            work.fail(ForwardFailedError(), spares_cache=is_out_of_memory(error))
        if work.error is not None and not work.spares_cache:
            work.sequence.valid_length = 0  # as at the end of a pass: the cause may be in the cache

    def _keep(self, work: VerifyWork, logits: Tensor) -> None:
        """Keeps a copy, since a pass may use its memory again. Rows that are not finite fail the work now: else nobody
        might look at what its pass left in the cache."""
        if not finite_rows(logits).all():
            work.fail(NotFiniteError())
        elif self.byte_count + logits.nbytes > MOST_BYTES:
            work.fail(WithdrawnError(), spares_cache=True)
        else:
            self._copy(work, logits)

    def _copy(self, work: VerifyWork, logits: Tensor) -> None:
        try:
            work.unjudged, work.done = logits.clone(), True
            self._works.add(work)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            work.fail(WithdrawnError(), spares_cache=True)


def take_rows(work: VerifyWork) -> bool:
    """Gives the work the distributions that have come since its call. Whether it has all."""
    late = work.call.late
    if late is not None and late.rows is not None:
        work.take_rows(late.rows)
    return work.call.late is None
