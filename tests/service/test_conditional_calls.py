"""Calls that depend on a verdict: no trace of those whose condition is not met, and the others begin as any call."""

import asyncio
from typing import Any

import grpc
import pytest

from specpair.engine import gathering
from specpair.v1 import error_reason_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from target_service import servicer
from target_service.verifier import Verifier
from tests.rpc_errors import refused
from tests.service.conditional import (
    PROMPT,
    VOCABULARY,
    Gate,
    Stream,
    close,
    conditional,
    counted,
    decided,
    open_sequence,
    renamed,
    until,
)
from tests.service.proposals import folder, target
from tests.services import RunningModel

__all__ = ["folder", "target"]

Code = grpc.StatusCode


async def waiting_calls(target: RunningModel, count: int) -> None:
    """Until so many calls of the sequence wait."""
    await until(lambda: len(target.host.sequences.get("s").waiting) == count)


def plain(step: int, base: int = len(PROMPT), **fields: Any) -> Any:
    return target_pb.VerifyProposalRequest(sequence_id="s", step=step, base_length=base, **fields)


def following(step: int, accepted: int, token: int, **fields: Any) -> Any:
    return conditional(plain(step + 1, len(PROMPT) + 1, **fields), "s", step, accepted, token)


def unchanging(target: RunningModel) -> Any:
    """Whatever a refused call might have changed: metrics, blocks, the sequence and its stored answer."""
    own = ("specpair_target_conditional", "specpair_streams", "grpc_", "process_", "python_", "specpair_device")
    samples = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in target.registry.collect()
        for sample in family.samples
        if not sample.name.startswith(own)
    }
    store = target.host.sequences
    held = store.get("s")
    state = (held.last_step, held.last_body, held.answer, held.length, list(held.cached.tokens))
    return samples, target.host.info(), state, dict(store._answers._sizes)


async def test_a_refused_call_leaves_no_trace(target: RunningModel) -> None:
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    await open_sequence(target, "twin", sampling={"temperature": 0.0, "seed": 1})
    stream, verdict = Stream(target), await target.hot.VerifyProposal(plain(0))
    before = unchanging(target)
    for call, outcome in (
        (following(0, 1, verdict.next_token_id), "not_met"),
        (following(0, 0, (verdict.next_token_id + 1) % VOCABULARY), "not_met"),
        (following(1, 0, verdict.next_token_id), "late"),
    ):
        assert await stream.decided(call) == {outcome: 1}
        assert unchanging(target) == before
    counts = counted(target)
    with Gate(target) as gate:
        under_way = asyncio.ensure_future(target.hot.VerifyProposal(plain(1, len(PROMPT) + 1)))
        await gate.reached()
        before = unchanging(target)
        await stream.tell(*(following(1, 3, token) for token in range(5)))
        await waiting_calls(target, 5)
        assert unchanging(target) == before
    expected = (await target.hot.VerifyProposal(renamed(plain(0), "twin"))).next_token_id
    assert expected == verdict.next_token_id
    own, twin = await under_way, await target.hot.VerifyProposal(renamed(plain(1, len(PROMPT) + 1), "twin"))
    assert decided(own) == decided(twin)
    await until(lambda: counted(target)["not_met"] == counts["not_met"] + 5)
    held = target.host.sequences.get("s")
    assert (held.last_step, held.length) == (1, len(PROMPT) + 2) and not held.waiting
    await stream.close()
    await close(target, names=["s", "twin"])


async def test_the_ordinary_call_gets_the_answer_of_the_conditional_one(target: RunningModel) -> None:
    """With the condition or without it is one call."""
    for name in (names := ["s", "twin"]):
        await open_sequence(target, name, sampling={"temperature": 1.0, "seed": 1})
    verdict = await target.hot.VerifyProposal(plain(0))
    await target.hot.VerifyProposal(renamed(plain(0), "twin"))
    expected = await target.hot.VerifyProposal(renamed(plain(1, len(PROMPT) + 1), "twin"))
    stream, call = Stream(target), following(0, 0, verdict.next_token_id)
    assert await stream.decided(call) == {"met": 1}
    answers = [await target.hot.VerifyProposal(plain(1, len(PROMPT) + 1)) for _ in range(2)]
    assert answers[0] == answers[1] and decided(answers[0]) == decided(expected)
    before = unchanging(target)
    assert await stream.decided(call) == {"late": 1}
    assert unchanging(target) == before
    await refused(target.hot.VerifyProposal(plain(1)), Code.ALREADY_EXISTS, "CONFLICTING_BODY")
    await stream.close()
    await close(target, names=names)


async def test_one_that_asks_for_an_answer_is_refused(target: RunningModel) -> None:
    """On the stream and by itself, whether its condition is met or not; nothing is changed or counted."""
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    stream, before, counts = Stream(target), unchanging(target), counted(target)
    for call in (following(0, 0, token), following(0, 1, token), renamed(following(0, 0, token), "unknown")):
        found = await refused(target.hot.VerifyProposal(call), Code.INVALID_ARGUMENT, "INVALID_FIELD")
        assert found["field"] == "condition"
        (answer,) = await stream.send(call)
        error = (await answer).error
        assert error.reason == error_reason_pb2.ERROR_REASON_INVALID_FIELD and error.metadata["field"] == "condition"
        assert "is_unanswered" in error.message
    assert unchanging(target) == before and counted(target) == counts
    await stream.close()
    await close(target, names=["s"])


async def test_one_that_is_too_large_to_be_read_on_the_event_loop_is_dropped(
    target: RunningModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    stream, before, call = Stream(target), unchanging(target), following(0, 0, token)
    monkeypatch.setattr(servicer, "MADE_ON_THE_LOOP_BYTES", call.ByteSize() - 1)
    assert await stream.decided(call) == {"full": 1}
    assert unchanging(target) == before
    monkeypatch.setattr(servicer, "MADE_ON_THE_LOOP_BYTES", call.ByteSize())
    assert await stream.decided(call) == {"met": 1}
    await stream.close()
    await close(target, names=["s"])


@pytest.mark.parametrize("end", ["close", "leave", "fail"])
async def test_the_wait_ends(target: RunningModel, end: str) -> None:
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    truth = await target.hot.VerifyProposal(plain(0))
    await close(target, names=["s"])
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    stream, before = Stream(target), counted(target)
    with Gate(target) as gate:
        under_way = asyncio.ensure_future(target.hot.VerifyProposal(plain(0)))
        await gate.reached()
        await stream.tell(following(0, 0, truth.next_token_id))
        await waiting_calls(target, 1)
        await stream.close()
        if end == "close":
            await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))
            await until(lambda: counted(target)["ended"] == before["ended"] + 1)
        elif end == "fail":
            gate.fail()
    if end == "close":
        await refused(under_way, Code.NOT_FOUND, "SEQUENCE_NOT_FOUND")
    elif end == "leave":  # the stream is over; the ordinary call may come on another one
        assert (await under_way).next_token_id == truth.next_token_id
        await until(lambda: target.host.sequences.get("s").last_step == 1)
        assert (await target.hot.VerifyProposal(plain(1, len(PROMPT) + 1))).step == 1
    else:
        await refused(under_way, Code.INTERNAL, "FORWARD_FAILED")
        await until(lambda: counted(target)["not_met"] == before["not_met"] + 1)
        assert target.host.sequences.get("s").last_step == -1
    await close(target, names=["s"])


async def test_a_bad_call_that_is_told_is_said_to_the_ordinary_one(target: RunningModel) -> None:
    """And one without a condition is answered, as any call."""
    await open_sequence(target, "s", sampling={"temperature": 1.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    bad: Any = {"proposal": {"token_ids": [VOCABULARY]}}
    before, met = unchanging(target)[2], counted(target)["met"]
    stream = Stream(target)
    await stream.tell(following(0, 0, token, **bad), renamed(following(0, 0, token), "unknown"))
    await until(lambda: counted(target)["met"] > met)
    assert unchanging(target)[2] == before
    await refused(
        target.hot.VerifyProposal(plain(1, len(PROMPT) + 1, **bad)), Code.INVALID_ARGUMENT, "INVALID_DISTRIBUTION"
    )
    await stream.tell(plain(1, len(PROMPT) + 1))
    await until(lambda: target.host.sequences.get("s").last_step == 1)
    await stream.close()
    await close(target, names=["s"])


async def test_one_in_the_same_message_as_what_it_depends_on_is_in_time(target: RunningModel) -> None:
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    await close(target, names=["s"])
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    before, stream = counted(target), Stream(target)
    first = target_pb.VerificationCall(call_id=1, request=plain(0))
    told = target_pb.VerificationCall(request=following(0, 0, token), is_unanswered=True)
    await stream.write(first, told)
    await until(lambda: target.host.sequences.get("s").last_step == 1)
    after = counted(target)
    assert after["met"] == before["met"] + 1 and after["late"] == before["late"]
    await stream.close()
    await close(target, names=["s"])


BAD = {"step": 1, "accepted_count": 17, "next_token_id": VOCABULARY}


@pytest.mark.parametrize("field", BAD)
async def test_conditions_that_cannot_be_met_change_nothing(target: RunningModel, field: str) -> None:
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    stream, before, call = Stream(target), unchanging(target), following(0, 0, token)
    call.condition.MergeFrom(target_pb.Condition(**{field: BAD[field]}))
    assert await stream.decided(call) == {"late" if field == "step" else "not_met": 1}
    assert unchanging(target) == before
    await stream.close()
    await close(target, names=["s"])


async def test_a_call_that_is_met_is_checked_as_any_other(target: RunningModel) -> None:
    """Only then, and its step stays free."""
    await open_sequence(target, "s", sampling={"temperature": 1.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    bad: Any = {"proposal": {"token_ids": [VOCABULARY]}}
    stream, before, beyond = Stream(target), unchanging(target), following(0, 0, token)
    beyond.base_length += 1
    assert await stream.decided(following(0, 1, token, **bad)) == {"not_met": 1}
    assert await stream.decided(following(0, 0, token, **bad), beyond) == {"met": 2}
    assert unchanging(target) == before
    assert (await target.hot.VerifyProposal(plain(1, len(PROMPT) + 1))).length == len(PROMPT) + 2
    await stream.close()
    await close(target, names=["s"])


@pytest.mark.parametrize("is_right", [True, False])
async def test_the_device_thread_knows_which_verdicts_are_waited_for(
    target: RunningModel, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next pass waits for the call that is met, and for no other."""
    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(plain(0))).next_token_id
    await close(target, names=["s"])
    assert isinstance(target.host, Verifier)
    stream, before = Stream(target), counted(target)
    gathering, seen = target.host.engine._turns._gathering, []
    leave = gathering.leave

    def note(works: Any, now: float) -> None:
        seen.extend(work.is_followed for work in works)
        leave(works, now)

    await open_sequence(target, "s", sampling={"temperature": 0.0, "seed": 1})
    with Gate(target) as gate:
        under_way = asyncio.ensure_future(target.hot.VerifyProposal(plain(0)))
        await gate.reached()
        guess = token if is_right else (token + 1) % VOCABULARY
        await stream.tell(following(0, 0, guess))
        await waiting_calls(target, 1)
        monkeypatch.setattr(gathering, "leave", note)
    await under_way
    await until(lambda: sum(counted(target).values()) > sum(before.values()))
    if is_right:
        await target.hot.VerifyProposal(plain(1, len(PROMPT) + 1))  # its pass is over
    assert seen[0] is is_right and not any(seen[1:]) and len(seen) == 1 + is_right
    assert (counted(target)["met"] > before["met"]) is is_right
    await stream.close()
    await close(target, names=["s"])


@pytest.mark.parametrize("bad", ["position", "token"])
async def test_no_pass_waits_for_a_bad_call(target: RunningModel, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its condition is met, but the call itself is refused: others go on at once."""
    stream, before = Stream(target), counted(target)
    for name in (names := ["s", "twin", "other"]):
        await open_sequence(target, name, sampling={"temperature": 0.0, "seed": 1})
    token = (await target.hot.VerifyProposal(renamed(plain(0), "twin"))).next_token_id
    monkeypatch.setattr(gathering, "LEAST_FOLLOWED_WAIT", 60.0)
    call = following(0, 0, token, proposal={"token_ids": [VOCABULARY]} if bad == "token" else None)
    call.base_length += bad == "position"
    with Gate(target) as gate:
        under_way = asyncio.ensure_future(target.hot.VerifyProposal(plain(0)))
        await gate.reached()
        await stream.tell(call)
        await waiting_calls(target, 1)
    await under_way
    async with asyncio.timeout(10.0):
        await target.hot.VerifyProposal(renamed(plain(0), "other"))
    assert counted(target)["met"] == before["met"] + 1 and target.host.sequences.get("s").last_step == 0
    await stream.close()
    await close(target, names=names)
