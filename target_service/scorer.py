"""Scores texts. The progress of a call that times out is kept and a repeated call continues from it, so scoring a text
may take longer than a single call."""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from specpair.engine.engine import Engine
from specpair.errors import NotFiniteError, SequenceNotFoundError, ShuttingDownError
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence, wait_for_answer
from specpair.sequences.sequence_store import SequenceStore
from specpair.sequences.token_digest import token_digest
from specpair.speculation.logprobs import TokenLogprobs
from target_service.scoring import MOST_ROWS, ScoredText, score_work

MOST_UNFINISHED = 4
"""Number of unfinished texts kept for repeated calls; each takes up to 2 KB per token."""


class Scorer:
    """Runs on the event loop. Each text is a sequence like others: it counts towards the limits and has a lease and an
    owner."""

    def __init__(self, engine: Engine, sequences: SequenceStore[Any], token_budget: int):
        self._engine = engine
        self._sequences = sequences
        self._piece_length = min(MOST_ROWS, token_budget)
        self._texts: WeakKeyDictionary[HeldSequence[Any], ScoredText] = WeakKeyDictionary()

    async def score(self, token_ids: list[int], top_count: int) -> list[TokenLogprobs]:
        """Logprobs of all tokens but the first."""
        name = text_name(token_ids, top_count)
        held = self._sequences.open(name, token_ids, len(token_ids), SequenceOptions(sampling=SamplingOptions()))
        text = self._text_of(held, token_ids, top_count)
        text.wanted_by += 1
        held.is_spare = False
        try:
            while not text.is_complete:
                await wait_for_answer(self._working(held, text), name)
        except NotFiniteError:
            self._sequences.drop(held)
            raise
        except SequenceNotFoundError:  # a text with waiting calls is closed only when the service stops
            raise ShuttingDownError from None
        finally:
            text.wanted_by -= 1
            if not text.wanted_by:
                self._leave(held, text)
        return text.scores

    def _text_of(self, held: HeldSequence[Any], token_ids: list[int], top_count: int) -> ScoredText:
        """The text with the progress of earlier calls, if any."""
        text = self._texts.get(held)
        if text is None:
            text = ScoredText(token_ids=token_ids, top_count=top_count, piece_length=self._piece_length)
            self._texts[held] = text
        return text

    def _working(self, held: HeldSequence[Any], text: ScoredText) -> "asyncio.Task[None]":
        """The work on a text; starts it unless it is under way. Without waiting calls it stops after one more piece."""
        if held.prefill is None or held.prefill.done():
            work = score_work(held.cached, text)
            held.prefill = asyncio.get_running_loop().create_task(self._engine.run(work))
            held.prefill.add_done_callback(report_nothing)
        return held.prefill

    def _leave(self, held: HeldSequence[Any], text: ScoredText) -> None:
        """Called when no call waits for the text any more. Keeps unfinished texts, up to MOST_UNFINISHED."""
        if text.is_complete:
            self._sequences.drop(held)
            return
        held.is_spare = True
        unwanted = [other for other, its in self._texts.items() if not its.wanted_by]
        for other in sorted(unwanted, key=lambda entry: entry.touched_at)[:-MOST_UNFINISHED]:
            self._sequences.drop(other)


def text_name(token_ids: list[int], top_count: int) -> str:
    """A sequence id that no client can choose, because it is not printable."""
    return f"\0score {top_count} {token_digest(token_ids).hex()}"


def report_nothing(work: "asyncio.Task[None]") -> None:
    """Retrieves the work's exception, so that asyncio does not log it: waiting calls report it."""
    if not work.cancelled():
        work.exception()
