"""The cache memory of sequences, and which sequence loses it when the cache is full."""

import contextlib
import time
from collections.abc import Sequence as Several

from specpair.caches.cache import KeyValueCache
from specpair.engine.scheduler import Chunk
from specpair.engine.statistics import EngineStatistics
from specpair.engine.work import Work
from specpair.errors import CapacityExhaustedError
from specpair.sequences.sequence import Sequence


class Holdings:
    """Keeps each sequence's holding consistent with its tokens. Device thread only."""

    def __init__(self, cache: KeyValueCache, statistics: EngineStatistics):
        self._cache = cache
        self._statistics = statistics
        self._idle: dict[Sequence, None] = {}
        """Sequences that hold cache but have no work, the longest idle first."""

    def prepare(self, work: Work) -> None:
        """Opens the holding if needed, and rolls it back to what agrees with the tokens."""
        sequence = work.sequence
        self._idle.pop(sequence, None)
        # Rows with wanted logits are fed again if needed, and no pass is empty.
        most = len(sequence.tokens) - max(1, work.row_count)
        if sequence.holding is None:
            # With another input of the encoder, the same tokens have other keys.
            sequence.holding = self._cache.open([] if sequence.encoder_input else sequence.tokens)
            sequence.valid_length = sequence.holding.length
            if sequence.kept_length is None:
                sequence.kept_length = min(sequence.holding.length, most)
        fed = min(sequence.valid_length, most)
        if sequence.holding.length > fed:
            started = time.perf_counter()
            self._cache.truncate_to(sequence.holding, fed)
            work.rollback_time += time.perf_counter() - started
            sequence.valid_length = fed

    def keep_path(self, work: Work) -> None:
        """Drops the tokens of a judged tree that do not stay, and moves those that do together. The sequence's tokens
        are those after the judgement already."""
        holding = work.sequence.holding
        assert holding is not None and work.parents is not None
        started = time.perf_counter()
        start = holding.length - len(work.parents)
        if work.path == list(range(len(work.path))):
            self._cache.truncate_to(holding, start + len(work.path))
        else:
            self._cache.keep_path(holding, start, work.path)
        work.sequence.valid_length = holding.length
        work.rollback_time += time.perf_counter() - started

    def reserve(self, chunks: list[Chunk], works: Several[Work]) -> list[Chunk]:
        """The chunks for which there is room. Takes cache from idle sequences first, then from younger works.

        `works` are all works in order of arrival. They are served in this order: the oldest makes progress in each of
        its turns, whatever the others need, so no work starves. Works in the background come last, and end for lack of
        room: they are done then.
        """
        age = {work: number for number, work in enumerate(works)}
        reserved: list[Chunk] = []
        for chunk in sorted(chunks, key=lambda chunk: (chunk.work.is_background, age[chunk.work])):
            if chunk.work.done or chunk.work.sequence.holding is None:  # just taken away for an older work
                continue
            while not self._append(chunk):
                if not self._make_room(chunk.work, works, works[age[chunk.work] + 1 :]):
                    break
            else:
                reserved.append(chunk)
        return reserved

    def _make_room(self, work: Work, works: Several[Work], younger: Several[Work]) -> bool:
        """Takes the cache of one sequence for a work: of a branch, an idle sequence, or a younger work. A work in the
        background takes nothing: it ends."""
        if work.is_background:
            self.end(work)
            return False
        return self._take_away_branch(works) or self._take_away_idle() or self._preempt(younger)

    def _take_away_branch(self, works: Several[Work]) -> bool:
        """Frees the cache of an idle branch, or else of the last work in the background, which ends."""
        for sequence in self._idle:
            if sequence.is_branch and self.has_blocks(sequence):
                self.discard(sequence)
                return True
        for work in reversed(works):
            if work.is_background and not work.done and self.has_blocks(work.sequence):
                self.discard(work.sequence)
                self.end(work)
                return True
        return False

    @staticmethod
    def end(work: Work) -> None:
        """Ends a work in the background for lack of cache."""
        work.fail(CapacityExhaustedError("no cache is left for work ahead"), spares_cache=True)

    def has_blocks(self, sequence: Sequence) -> bool:
        """Whether the sequence has blocks, alone or with others, that could be taken."""
        return sequence.holding is not None and self._cache.has_blocks(sequence.holding)

    def rest(self, sequence: Sequence) -> None:
        """Marks a sequence without work as idle: others may take its blocks."""
        if sequence.holding is not None:
            self._idle[sequence] = None

    def release(self, sequence: Sequence) -> None:
        """Frees a sequence's blocks, but keeps their content for sequences with the same prefix."""
        self._idle.pop(sequence, None)
        if sequence.holding is None:
            return
        valid = min(sequence.holding.length, sequence.valid_length)
        self._cache.truncate_to(sequence.holding, valid)
        if sequence.encoder_input is None:
            self._cache.keep(sequence.holding, sequence.tokens[:valid])
        self._cache.free(sequence.holding)
        sequence.holding = None

    def discard(self, sequence: Sequence) -> None:
        """Frees a sequence's blocks, and keeps nothing."""
        self._idle.pop(sequence, None)
        if sequence.holding is not None:
            self._cache.free(sequence.holding)
            sequence.holding = None

    def fork(self, source: Sequence, forked: Sequence, room: int = 0) -> None:
        """Copies or shares the cached prefix of both, where the cache makes room in advance with room for more tokens;
        if that fails, it is recomputed when needed.

        `forked.valid_length` may have been lowered meanwhile and is not raised here: only a forward pass, or `prepare`
        for a work, may raise it.
        """
        if source.holding is None or forked.holding is not None:
            return
        held = min(source.valid_length, forked.valid_length, source.holding.length)
        if not held:
            return
        with contextlib.suppress(CapacityExhaustedError):
            forked.holding = self._cache.fork(source.holding, held, room)
            self._idle[forked] = None

    def _append(self, chunk: Chunk) -> bool:
        holding = chunk.work.sequence.holding
        assert holding is not None
        try:
            self._cache.append(holding, chunk.token_count)
        except CapacityExhaustedError:
            return False
        return True

    def _take_away_idle(self) -> bool:
        """Frees the cache of the longest idle sequence; its tokens are fed again when needed."""
        sequence = next(iter(self._idle), None)
        if sequence is None:
            return False
        self._take_away(sequence)
        return True

    def _preempt(self, works: Several[Work]) -> bool:
        """Frees the cache of the youngest of the works."""
        for work in reversed(works):
            if self.has_blocks(work.sequence):
                self._take_away(work.sequence)
                return True
        return False

    def _take_away(self, sequence: Sequence) -> None:
        """Frees a sequence's cache for others, and counts it; its tokens are fed again when needed.

        Keeps no prefix: an idle sequence's tokens may be changing on the event loop at this moment, and a waiting
        sequence would take its blocks right back.
        """
        self._idle.pop(sequence, None)
        assert sequence.holding is not None
        free = self._cache.block_counts().free
        self._cache.free(sequence.holding)
        sequence.holding = None
        self._statistics.evicted_blocks += self._cache.block_counts().free - free
        self._statistics.preemptions += 1
