"""The open sequences of a process: whose they are, how long they stay, what is remembered of them."""

import asyncio
from dataclasses import dataclass

import pytest

from specpair.errors import CapacityExhaustedError, ConflictingBodyError, SequenceNotFoundError, StaleStepError
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.answer_memory import AnswerMemory
from specpair.sequences.cache_owner import NoCaches
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.open_sequences import SHORT_LEASE_SECONDS
from specpair.sequences.sequence_limits import NoRoom, SequenceLimits
from specpair.sequences.sequence_store import SequenceStore

LEASE = 300.0
OPTIONS = SequenceOptions(sampling=SamplingOptions(seed=1))


@dataclass(frozen=True)
class Reply:
    byte_count: int = 0


class Process:
    """A store with a clock and a caller that the test sets."""

    def __init__(self, max_num_seqs: int = 3, max_num_seqs_per_client: int | None = None):
        limits = SequenceLimits(
            max_model_len=100,
            max_num_seqs=max_num_seqs,
            vocab_size=10,
            lease_seconds=LEASE,
            max_num_seqs_per_client=max_num_seqs_per_client,
        )
        self.now = 0.0
        self.client = ""
        self.store: SequenceStore[Reply] = SequenceStore(NoCaches(), limits, lambda: self.client, lambda: self.now)

    def open(self, *names: str) -> None:
        for name in names:
            self.store.open(name, [1, 2, 3], 3, OPTIONS)

    async def step(self, name: str, number: int, byte_count: int = 0) -> Reply:
        async def compute(held: HeldSequence[Reply]) -> Reply:
            return Reply(byte_count)

        return await self.store.step(name, number, b"body", compute)

    def has(self, name: str) -> bool:
        """Without touching it."""
        return any(key.sequence_id == name for key in self.store._held)


def test_what_nobody_touched_is_closed() -> None:
    process = Process()
    process.open("a", "b")
    process.now = LEASE - 1
    process.store.get("b")
    process.store.expire()
    assert len(process.store) == 2
    process.now = LEASE
    process.store.expire()
    assert (process.has("a"), process.has("b"), process.store.expired_count) == (False, True, 1)
    with pytest.raises(SequenceNotFoundError):
        process.store.get("a")


async def test_each_call_begins_the_lease_anew() -> None:
    process = Process(max_num_seqs=8)
    process.open("opened", "stepped", "forked", "rolled", "untouched")
    process.now = LEASE - 1
    process.open("opened")
    await process.step("stepped", 0)
    await process.store.fork("forked", "copy", 2, None)
    await process.store.rollback("rolled", 2)
    process.now = LEASE
    process.store.expire()
    assert len(process.store) == 5 and not process.has("untouched")


async def test_work_is_not_idleness_however_long_it_takes() -> None:
    process = Process(max_num_seqs=2)
    process.open("working", "ahead")
    gate = asyncio.Event()

    async def compute(held: HeldSequence[Reply]) -> Reply:
        await gate.wait()
        return Reply()

    async def wait() -> None:
        await gate.wait()

    step = asyncio.create_task(process.store.step("working", 0, b"body", compute))
    ahead = process.store.get("ahead").prefill = asyncio.create_task(wait())
    await asyncio.sleep(0)
    process.now = 10 * LEASE
    process.store.expire()
    with pytest.raises(CapacityExhaustedError):
        process.open("new")
    assert len(process.store) == 2
    gate.set()
    await asyncio.gather(step, ahead)
    process.now += LEASE - 1
    process.store.expire()
    assert len(process.store) == 2
    process.now += 1
    process.store.expire()
    assert len(process.store) == 0


def test_a_full_house_makes_room_by_what_was_idle_longest() -> None:
    process = Process()
    for number, name in enumerate("abc"):
        process.now = float(number)
        process.open(name)
    process.store.get("a")
    process.now = 1 + SHORT_LEASE_SECONDS - 0.1
    with pytest.raises(CapacityExhaustedError):
        process.open("d")
    assert len(process.store) == 3
    process.now = 1 + SHORT_LEASE_SECONDS
    process.open("d")
    assert [process.has(name) for name in "abcd"] == [True, False, True, True]
    assert process.store.expired_count == 1


async def test_a_fork_does_not_give_up_its_own_original() -> None:
    process = Process(max_num_seqs=1)
    process.open("a")
    process.now = LEASE
    with pytest.raises(CapacityExhaustedError):
        await process.store.fork("a", "copy", 2, None)
    assert process.has("a")


async def test_a_fork_that_waits_long_for_its_original_does_not_give_it_up() -> None:
    process = Process(max_num_seqs=1)
    process.open("a")
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    process.store.get("a").prefill = asyncio.create_task(wait())
    fork = asyncio.create_task(process.store.fork("a", "copy", 2, None))
    await asyncio.sleep(0)
    process.now = LEASE
    gate.set()
    with pytest.raises(CapacityExhaustedError):
        await fork
    assert process.has("a")


async def test_a_sequence_is_that_of_the_client_that_opened_it() -> None:
    process = Process(max_num_seqs=8)
    process.client = "one"
    process.open("s")
    process.client = "two"
    for call in (process.step("s", 0), process.store.rollback("s", 2), process.store.fork("s", "copy", 2, None)):
        with pytest.raises(SequenceNotFoundError):
            await call
    process.store.close("s")
    process.store.open("s", [4, 5], 2, OPTIONS)  # with another body, and no conflict
    assert process.store.get("s").length == 2
    process.client = "one"
    assert process.store.get("s").length == 3
    with pytest.raises(ConflictingBodyError):
        process.store.open("s", [4, 5], 2, OPTIONS)


async def test_a_client_has_no_more_than_its_own_share() -> None:
    """By forks as well as by itself; others are not refused, and what is open stays."""
    process = Process(max_num_seqs=5, max_num_seqs_per_client=2)
    process.client = "one"
    process.open("a", "b")
    process.open("a")  # again
    with pytest.raises(CapacityExhaustedError, match="2 sequences of this client are open"):
        process.open("c")
    with pytest.raises(CapacityExhaustedError, match="of this client"):
        await process.store.fork("a", "copy", 2, None)
    process.client = "two"
    process.open("a", "b")
    process.client = "three"
    process.open("a")
    with pytest.raises(CapacityExhaustedError, match="5 sequences are open"):
        process.open("b")
    assert process.store.refusals == {NoRoom.CLIENT_LIMIT: 2, NoRoom.FULL: 1}
    process.client = "one"
    process.store.close("a")
    process.open("c")
    assert len(process.store) == 5


def test_a_client_at_its_limit_gives_up_what_is_its_own() -> None:
    """As a coordinator does that was restarted; what another left behind is none of its business."""
    process = Process(max_num_seqs=8, max_num_seqs_per_client=2)
    for number, client in enumerate(("other", "one", "one")):
        process.now, process.client = float(number), client
        process.open(f"{client}-{number}")
    process.now = 1 + SHORT_LEASE_SECONDS
    process.open("one-3")
    assert [process.has(name) for name in ("other-0", "one-1", "one-2", "one-3")] == [True, False, True, True]
    with pytest.raises(CapacityExhaustedError):
        process.open("one-4")


async def test_stored_answers_are_bounded_together() -> None:
    process = Process()
    process.store._answers = AnswerMemory(limit=100)
    process.open("a", "b", "c")
    for name in "abc":
        await process.step(name, 0, 40)
    with pytest.raises(StaleStepError):
        await process.step("a", 0)
    assert await process.step("b", 0) == await process.step("c", 0) == Reply(40)
    await process.step("a", 1, 1000)  # too much by itself, and the newest
    assert await process.step("a", 1) == Reply(1000)
    with pytest.raises(StaleStepError):
        await process.step("b", 0)
    for name in "abc":
        process.store.close(name)
    assert process.store._answers._total == 0


async def test_a_repeated_step_is_computed_once() -> None:
    process = Process()
    process.open("a")
    computed: list[int] = []

    async def compute(held: HeldSequence[Reply]) -> Reply:
        computed.append(1)
        await asyncio.sleep(0)
        return Reply(len(computed))

    together = await asyncio.gather(*(process.store.step("a", 0, b"body", compute) for _ in range(3)))
    assert [*together, await process.store.step("a", 0, b"body", compute)] == [Reply(1)] * 4


async def test_a_step_under_way_is_no_stored_answer() -> None:
    """To forget it would let another step begin beside it."""
    process = Process()
    process.store._answers = AnswerMemory(limit=100)
    process.open("a", "b")
    await process.step("a", 0, 40)
    gate = asyncio.Event()

    async def wait(held: HeldSequence[Reply]) -> Reply:
        await gate.wait()
        return Reply()

    step = asyncio.create_task(process.store.step("a", 1, b"body", wait))
    await asyncio.sleep(0)
    await process.step("b", 0, 90)
    assert process.store.get("a").is_busy
    gate.set()
    assert await step == Reply()


async def test_an_answer_that_stays_since_the_next_step_failed_is_still_counted() -> None:
    process = Process()
    process.store._answers = AnswerMemory(limit=100)
    process.open("a")
    await process.step("a", 0, 40)

    async def fail(held: HeldSequence[Reply]) -> Reply:
        raise CapacityExhaustedError("full")

    with pytest.raises(CapacityExhaustedError):
        await process.store.step("a", 1, b"body", fail)
    assert await process.step("a", 0) == Reply(40)
    assert process.store._answers._total == 40
    await process.store.rollback("a", 2)
    assert process.store._answers._total == 0
