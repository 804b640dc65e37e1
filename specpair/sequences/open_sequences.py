"""The open sequences of a process: their owners, limits and leases.

A sequence belongs to the client that opened it. Other clients cannot see it; the same id is another sequence for them.
Runs on the event loop.
"""

import time
from collections import Counter
from collections.abc import Callable, Set
from typing import Generic, NamedTuple

from specpair.errors import CapacityExhaustedError, SequenceNotFoundError
from specpair.sequences.answer_memory import AnswerMemory
from specpair.sequences.cache_owner import CacheOwner
from specpair.sequences.conditional_calls import give_up
from specpair.sequences.held_sequence import Answer, HeldSequence
from specpair.sequences.sequel import Sequel, SequelOutcome
from specpair.sequences.sequence_limits import NoRoom, SequenceLimits

SHORT_LEASE_SECONDS = 10.0
"""At the limit, a sequence unused for this long is closed to make room, so that a restarted coordinator is not refused
because of sequences it left open. If the owner was only slow, it opens the sequence again, which costs time."""


class SequenceKey(NamedTuple):
    """Identifies a sequence: clients choose ids independently of each other."""

    client: str
    sequence_id: str


def anonymous() -> str:
    """The caller if clients have no names."""
    return ""


class OpenSequences(Generic[Answer]):
    """All open sequences of a process. `Answer` is what their hot call returns."""

    def __init__(
        self,
        caches: CacheOwner,
        limits: SequenceLimits,
        caller: Callable[[], str] = anonymous,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._caches = caches
        self.limits = limits
        self._caller = caller
        """Returns the client of the current call."""
        self._clock = clock
        self._held: dict[SequenceKey, HeldSequence[Answer]] = {}
        self._answers = AnswerMemory()
        self.expired_count = 0
        """Sequences that were closed because they were unused."""
        self.refusals: Counter[NoRoom] = Counter()
        """Sequences that were not opened, by reason."""
        self.sequel_outcomes: Counter[SequelOutcome] = Counter()
        """What became of the steps to which the process went on by itself."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, sequence_id: str) -> HeldSequence[Answer]:
        held = self._held.get(self._key(sequence_id))
        if held is None:
            raise SequenceNotFoundError(sequence_id)
        held.touched_at = self._clock()
        return held

    def close(self, sequence_id: str) -> None:
        """Forgets the sequence and cancels its work. An unknown id is not an error."""
        self._close(self._key(sequence_id))

    def drop(self, held: HeldSequence[Answer]) -> None:
        """Closes this sequence of any client, if it is still open."""
        for key, other in self._held.items():
            if other is held:
                self._close(key)
                return

    def close_all(self) -> None:
        for key in list(self._held):
            self._close(key)

    def expire(self) -> None:
        """Closes the sequences whose lease has ended. Call it every few seconds."""
        limit = self._clock() - self.limits.lease_seconds
        for key in [key for key, held in self._idle_sequences() if held.touched_at <= limit]:
            self._give_up(key)

    def _key(self, sequence_id: str) -> SequenceKey:
        return SequenceKey(self._caller(), sequence_id)

    def _check_room(self) -> None:
        """Raises CapacityExhaustedError if the caller or the process is at its limit and no sequence can be closed to
        make room. Call it as the last check, because it may close a sequence."""
        caller, own_limit, limit = self._caller(), self.limits.max_num_seqs_per_client, self.limits.max_num_seqs
        own = {key for key in self._held if key.client == caller}
        if own_limit is not None and len(own) >= own_limit:
            words = f"{len(own)} sequences of this client are open, the most that one client may have"
            self._make_room(own, NoRoom.CLIENT_LIMIT, words, own_limit)
        elif len(self._held) >= limit:
            words = f"{len(self._held)} sequences are open, the most that are allowed"
            self._make_room(self._held.keys(), NoRoom.FULL, words, limit)

    def _make_room(self, keys: Set[SequenceKey], refusal: NoRoom, words: str, limit: int) -> None:
        """Closes a spare sequence among `keys`, else the longest idle one. Raises CapacityExhaustedError if no short
        lease has ended."""
        if spare := [key for key in keys if self._held[key].is_spare]:
            return self._close(min(spare, key=lambda key: self._held[key].touched_at))
        idle = [(key, held) for key, held in self._idle_sequences() if key in keys]
        key, held = min(idle, key=lambda entry: entry[1].touched_at, default=(None, None))
        if key is None or held is None or held.touched_at > self._clock() - SHORT_LEASE_SECONDS:
            self.refusals[refusal] += 1
            raise CapacityExhaustedError(words, limit=limit)
        self._give_up(key)

    def _idle_sequences(self) -> list[tuple[SequenceKey, HeldSequence[Answer]]]:
        """The sequences without work. Restarts the lease of all others: it begins when their work ends, or slightly
        before."""
        idle: list[tuple[SequenceKey, HeldSequence[Answer]]] = []
        for key, held in self._held.items():
            if held.is_under_work:
                held.touched_at = self._clock()
            else:
                idle.append((key, held))
        return idle

    def _give_up(self, key: SequenceKey) -> None:
        """Closes an unused sequence. If its owner still needs it, it opens it again."""
        self._close(key)
        self.expired_count += 1

    def _close(self, key: SequenceKey) -> None:
        held = self._held.pop(key, None)
        if held is None:
            return
        held.is_open = False
        self._drop_sequel(held)
        self._answers.release(held)
        for task in (held.answer, held.prefill):
            if task is not None:
                task.cancel()
        if held.work is not None:
            give_up(held.work)
        if (begun := held.begun) is not None:
            held.begun = None
            give_up(begun.work.future)
            if isinstance(begun.call.condition, Sequel):
                self.sequel_outcomes[SequelOutcome.DROPPED] += 1
        self._caches.close(held.cached)

    def _drop_sequel(self, held: HeldSequence[Answer]) -> None:
        """Counts a step to which the process went on by itself and whose call has not come, if there is one."""
        if held.is_ahead:
            held.is_ahead = False
            self.sequel_outcomes[SequelOutcome.DROPPED] += 1
