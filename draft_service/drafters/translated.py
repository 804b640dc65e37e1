"""Drafter: the draft model, for targets with another vocabulary.

The sequence that a call names has the target's tokens; the model is fed its own tokens of the same text. Under TLI its
rows are turned into rows of the target's ids, and all that follows is as for one vocabulary: options, encoding, draw.
Under SLEM it writes text, whose tokens are sent as certain. See docs/exactness.md ("Other vocabularies").

It makes chains, and does not work ahead.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from draft_service.drafters.interface import Proposer
from draft_service.drafters.model import ProposeWork, WorkRunner, report_nothing
from draft_service.drafters.translated_caches import Translated, TranslatedCaches
from draft_service.proposal import Drafted, ProposeCall
from draft_service.translation.translation import Translation
from specpair.drafting import draw_next
from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.options import Drafter, Rule
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.count_row import TOTAL, CountRow

LONG = 256
"""Tokens from which on a text is cut in a thread, so that others need not wait."""


@dataclass(eq=False, kw_only=True)
class TranslatedWork(Work):
    """A proposal whose sequence has the draft's own tokens."""

    translation: Translation


@dataclass(eq=False, kw_only=True)
class DrawingWork(TranslatedWork):
    """Draws common tokens: each is added to both sequences."""

    drawing: ProposeWork
    """The proposal in the target's ids. The engine does not see it."""
    noted: int = 0
    """Tokens that were taken over."""

    @property
    def width(self) -> int:
        """Of rows of the target's ids."""
        return self.drawing.options.vocab_size or self.translation.reader.width

    def note(self, logits: Tensor) -> None:
        """Takes over what was drawn from a row of the draft's own logits."""
        drawing = self.drawing
        if drawing.error is not None and not (isinstance(drawing.error, NotFiniteError) and has_no_nan(logits)):
            self.fail(drawing.error)
            return
        self.done = drawing.done  # without an error there was no common token that the options allow
        if drawing.error is None and len(drawing.tokens) > self.noted:
            self.sequence.tokens.append(self.translation.own_id(drawing.tokens[-1]))
            self.noted += 1

    def drafted(self) -> Drafted:
        return in_time_of(self, self.drawing.drafted())


@dataclass(eq=False, kw_only=True)
class WritingWork(TranslatedWork):
    """Writes the likeliest text, in the draft's own tokens."""

    count: int
    min_confidence: float
    confidence: float = 1.0
    own_ids: list[int] = field(default_factory=list)

    def write(self, row: Tensor) -> None:
        """Takes the likeliest token that is text, or a special one that the target has."""
        if unwritable := self.translation.unwritable:
            row = row.clone()
            row[unwritable] = -torch.inf
        share, token = (float(part) for part in row.softmax(-1).max(-1))
        if not share > 0.0:
            self.done = True
            if not self.own_ids:
                self.fail(NotFiniteError())
            return
        self.own_ids.append(int(token))
        self.sequence.tokens.append(int(token))
        self.confidence *= share
        is_over = int(token) not in self.translation.writer.pieces or self.confidence < self.min_confidence
        self.done = is_over or len(self.own_ids) == self.count


def in_time_of(work: Work, drafted: Drafted) -> Drafted:
    """The proposal with what the work's passes took."""
    return replace(
        drafted,
        queue_time=work.queue_time,
        compute_time=work.compute_time,
        batch_size=work.largest_batch.sequence_count if work.largest_batch else 0,
        rollback_time=work.rollback_time,
    )


def has_no_nan(row: Tensor) -> bool:
    return not bool(row.isnan().any())


class TranslatedDrafter(Proposer):
    """The draft model, for sequences with the tokens of another vocabulary."""

    def __init__(self, engine: WorkRunner, caches: TranslatedCaches, max_model_len: int):
        """`max_model_len` is the longest sequence in the draft's own tokens."""
        self._engine, self._caches, self._max_model_len = engine, caches, max_model_len

    def begin(self, held: HeldSequence[Drafted]) -> None:
        """Translates and prefills the sequence ahead of its first call."""
        if held.prefill is None and held.last_step < 0 and self._caches.find(held.cached) is not None:
            held.prefill = asyncio.get_running_loop().create_task(self._prefill(held))
            held.prefill.add_done_callback(report_nothing)

    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        translated = await self._caught_up(held)
        # The same text may have more of the draft's tokens than of the target's.
        count = min(call.count, self._max_model_len - len(translated.own.tokens))
        if count < 1:
            return nothing()
        try:
            if translated.translation.writes(held.options.sampling):
                return await self._write(held, translated, replace(call, count=count))
            return await self._draw(held, translated, replace(call, count=count))
        except Exception:
            held.cached.replace_from(held.length, [])
            own = translated.own
            own.replace_from(min(len(translated.transcript.own_ids), len(own.tokens)), [])
            raise

    async def _draw(self, held: HeldSequence[Drafted], translated: Translated, call: ProposeCall) -> Drafted:
        drawing = ProposeWork(
            sequence=held.cached,
            row_count=1,
            held=held,
            step=call.step,
            count=call.count,
            min_confidence=call.min_confidence,
        )
        work = DrawingWork(sequence=translated.own, row_count=1, drawing=drawing, translation=translated.translation)
        await self._engine.run(work)
        return work.drafted()

    async def _write(self, held: HeldSequence[Drafted], translated: Translated, call: ProposeCall) -> Drafted:
        translation = translated.translation
        work = WritingWork(
            sequence=translated.own,
            row_count=1,
            translation=translation,
            count=call.count,
            min_confidence=call.min_confidence,
        )
        await self._engine.run(work)
        assert held.options.vocab_size is not None
        tokens = known_start(translation.rewritten(translated.transcript, work.own_ids), held.options.vocab_size)
        tokens = tokens[: call.count]
        rows = [] if held.options.rule is Rule.COUPLED else [CountRow((token,), (TOTAL,)) for token in tokens]
        return in_time_of(work, replace(nothing(), tokens=tokens, counts=rows))

    async def _prefill(self, held: HeldSequence[Drafted]) -> None:
        translated = await self._caught_up(held)
        if len(translated.own.tokens) < self._max_model_len:
            await self._engine.run(Work(sequence=translated.own, row_count=0))

    async def _caught_up(self, held: HeldSequence[Drafted]) -> Translated:
        """The sequence in the draft's own tokens, with all that is committed."""
        translated = self._caches.find(held.cached)
        assert translated is not None, "opened with the sequence"
        if held.length - len(translated.transcript.ends) < LONG:
            changed = translated.cut(held.cached, held.length)
        else:
            changed = await asyncio.to_thread(translated.cut, held.cached, held.length)
        translated.apply(held.cached, changed)
        return translated


def nothing() -> Drafted:
    """A proposal without tokens."""
    return Drafted(drafter=Drafter.MODEL, tokens=[], counts=[], dense=[], queue_time=0, compute_time=0, batch_size=0)


def known_start(token_ids: Iterable[int], vocab_size: int) -> list[int]:
    """The tokens before the first that is not below `vocab_size`."""
    known: list[int] = []
    for token_id in token_ids:
        if token_id >= vocab_size:
            break
        known.append(token_id)
    return known


def advance_translated(works: list[Work], logits: Tensor) -> tuple[list[Work], Tensor]:
    """Goes on with the translated ones of the works, each with one row of logits `[sum of row counts, vocabulary]`.
    Returns the others, with their rows."""
    own = [work for work in works if isinstance(work, TranslatedWork)]
    if not own:
        return works, logits
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    groups: dict[tuple[Translation, int], list[DrawingWork]] = {}
    for work in own:
        if isinstance(work, WritingWork):
            work.write(rows[work][0])
        elif isinstance(work, DrawingWork):
            groups.setdefault((work.translation, work.width), []).append(work)
    for (translation, width), group in groups.items():
        draw_next([w.drawing for w in group], translation.in_target_ids(torch.cat([rows[w] for w in group]), width))
        for work in group:
            work.note(rows[work])
    others = [work for work in works if not isinstance(work, TranslatedWork)]
    return others, torch.cat([rows[work] for work in others]) if others else logits[:0]
