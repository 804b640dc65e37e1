"""Masks the target's rows of structured outputs: what is left of its distribution is what proposals are judged by.

The masks are made by threads while the forward pass runs. A drafted token that does not fit gets probability 0, and the
rule rejects it; a block is never cut there, which would bias the output (docs/exactness.md, rule 8).
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from specpair.errors import InvalidGrammarError, SpecpairError
from specpair.grammars.grammar import NO_TOKEN, GrammarState, RowMask
from specpair.speculation.masking import mask_rows
from target_service.verify_work import VerifyWork

THREADS = 2


class MaskMaker:
    """The threads that make masks, and what they took."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="masks")
        self.row_count = 0
        """Rows that got a mask, and places where one token was found to be forced, or the first that is not."""
        self.seconds = 0.0
        """Time of making them."""

    def begin(
        self, state: GrammarState, output: Sequence[int], proposed: Sequence[int], parents: Sequence[int] | None
    ) -> "Future[list[RowMask]]":
        """Makes the masks of the rows after `output` and after each proposed token; `parents` if they are a tree."""
        return self._threads.submit(self._make, state, output, paths(proposed, parents))

    async def forced(self, state: GrammarState, output: Sequence[int], most: int) -> list[int]:
        """The tokens that have to follow `output`, up to `most`."""
        return await asyncio.wrap_future(self._threads.submit(self._force, state, output, most))

    def end(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _make(self, state: GrammarState, output: Sequence[int], rows: Sequence[Sequence[int]]) -> list[RowMask]:
        started = time.perf_counter()
        masks = state.masks(output, rows)
        self.seconds += time.perf_counter() - started
        self.row_count += len(masks)
        return masks

    def _force(self, state: GrammarState, output: Sequence[int], most: int) -> list[int]:
        started = time.perf_counter()
        found = state.forced(output, most)
        self.row_count += min(len(found) + 1, most)
        self.seconds += time.perf_counter() - started
        return found


def paths(proposed: Sequence[int], parents: Sequence[int] | None) -> list[list[int]]:
    """The proposed tokens that each row has seen: none, then those up to each of them."""
    found: list[list[int]] = [[]]
    for index, token in enumerate(proposed):
        found.append([*found[index if parents is None else 1 + parents[index]], token])
    return found


def masked_rows(works: list[VerifyWork], logits: Tensor) -> Tensor:
    """The logits `[sum of (K + 1), vocabulary]` with the masks of structured outputs applied, in a new tensor if there
    are any. Works whose masks could not be made fail."""
    if all(work.masking is None for work in works):
        return logits
    bits: list[bytes | None] = []
    for work in works:
        bits += [mask.bits for mask in masks_of(work)]
    masked = logits.clone()
    mask_rows(masked, bits)
    return masked


def masks_of(work: VerifyWork) -> list[RowMask]:
    """The masks of the work's rows; waits until they are made. Those of a work that is done do not matter."""
    if work.masking is not None and not work.done:
        try:
            return work.masking.result()
        except SpecpairError as error:
            work.fail(error, spares_cache=True)
    return [RowMask()] * work.row_count


def check_drawn(work: VerifyWork, path: Sequence[int]) -> None:
    """Raises InvalidGrammarError if the next token after an accepted path was drawn where none fits, or if that path
    went through such a place."""
    if work.masking is None:
        return
    masks = work.masking.result()
    if any(masks[row].is_stuck for row in (0, *(1 + index for index in path))):
        raise InvalidGrammarError(NO_TOKEN)
