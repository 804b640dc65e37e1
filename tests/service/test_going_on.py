"""The device thread begins with a call that waits for its verdict, without the event loop: the same bits, no trace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from specpair.security.settings import ChannelSecurity, ServerSecurity
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from target_service.verifier import Verifier
from tests.calling_as import calling_as
from tests.service.conditional import (
    PROMPT,
    Gate,
    Stream,
    close,
    conditional,
    decided,
    open_sequence,
    renamed,
    until,
)
from tests.service.targets_with_heads import VOCABULARY, running_targets
from tests.services import PairSecurity, RunningModel, engine_config, running_target
from tests.tiny_models import make_model

TOKEN = "a" * 20
SAMPLING: dict[str, Any] = {"temperature": 1.0, "seed": 4}


@pytest.fixture(scope="module")
async def targets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningModel]]:
    async with running_targets(tmp_path_factory.mktemp("models")) as running:
        yield running


class Submitted:
    """The calls that the event loop gave to the device thread."""

    def __init__(self, target: RunningModel, monkeypatch: pytest.MonkeyPatch):
        assert isinstance(target.host, Verifier)
        self.steps: list[int] = []
        submit = target.host._submit

        def note(held: Any, call: Any) -> Any:
            self.steps.append(call.step)
            return submit(held, call)

        monkeypatch.setattr(target.host, "_submit", note)


def call_of(step: int, length: int, order: int = 0, **fields: Any) -> Any:
    return target_pb.VerifyProposalRequest(
        sequence_id="s", step=step, base_length=length, next_proposal_count=order, **fields
    )


def promised(order: int = 0) -> Any:
    """The first call, which says what follows."""
    return call_of(0, len(PROMPT), order, continuation={"next_proposal_count": order})


def after(verdict: Any, order: int = 0, **fields: Any) -> Any:
    """The second call: what the target proposed, repeated."""
    own = verdict.next_proposal if verdict.next_proposal.token_ids else None
    return call_of(1, verdict.length, order, **{"proposal": own, **fields})


async def waited(target: RunningModel, name: str, order: int) -> list[Any]:
    """The verdicts of both calls on a sequence of its own, one after the other."""
    await open_sequence(target, name, sampling=SAMPLING)
    first = await target.hot.VerifyProposal(renamed(call_of(0, len(PROMPT), order), name))
    return [first, await target.hot.VerifyProposal(renamed(after(first, order), name))]


def last_step(target: RunningModel, step: int) -> Callable[[], bool]:
    return lambda: target.host.sequences.get("s").last_step == step


@pytest.mark.parametrize("kind", ["none", "chains", "trees"])
async def test_the_call_that_was_promised_begins_on_the_device_thread(
    targets: dict[str, RunningModel], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, order = targets[kind], 0 if kind == "none" else 3
    expected = await waited(target, "waits", order)
    await open_sequence(target, "s", sampling=SAMPLING)
    submitted = Submitted(target, monkeypatch)
    with Gate(target) as gate:
        first = asyncio.ensure_future(target.hot.VerifyProposal(promised(order)))
        await gate.reached()
    verdict = await first
    await until(last_step(target, 1))
    second = await target.hot.VerifyProposal(after(verdict, order))
    assert [decided(verdict), decided(second)] == [decided(each) for each in expected]
    assert kind == "none" or verdict.next_proposal.token_ids
    assert submitted.steps == [0]
    await close(target, names=["waits", "s"])


@pytest.mark.parametrize("kind", ["chains", "trees"])
async def test_an_answer_says_what_proposing_took(targets: dict[str, RunningModel], kind: str) -> None:
    for order in (0, 3):
        for verdict in await waited(targets[kind], f"asks for {order}", order):
            assert verdict.proposing_time_us < verdict.compute_time_us
            assert (verdict.proposing_time_us > 0) is (order > 0)
    await close(targets[kind], names=["asks for 0", "asks for 3"])


@pytest.mark.parametrize("is_told", [True, False])
async def test_it_is_the_same_for_a_client_with_a_name(
    tmp_path: Path, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences belong to clients, and the device thread serves no call."""
    (tmp_path / "tokens").write_text(f"alice:{TOKEN}\n")
    security = PairSecurity(
        models=ServerSecurity(tokens_file=str(tmp_path / "tokens")), peers=ChannelSecurity(token=TOKEN)
    )
    model = make_model(tmp_path / "target", seed=1, vocab_size=VOCABULARY)
    async with running_target(engine_config(model), security) as target:
        with calling_as("alice"):
            first, _ = await waited(target, "waits", 0)
            await open_sequence(target, "s", sampling=SAMPLING)
            submitted = Submitted(target, monkeypatch)
            right = conditional(after(first), "s", 0, 0, first.next_token_id)
            stream = None
            with Gate(target) as gate:
                if is_told:
                    stream, verdict = await told(target, gate, right)
                else:
                    verdict = asyncio.ensure_future(target.hot.VerifyProposal(promised()))
                    await gate.reached()
            await verdict
            await until(last_step(target, 1))
            assert (await target.hot.VerifyProposal(after(first))).step == 1 and submitted.steps == [0]
            if stream is not None:
                await stream.close()
            await close(target, names=["waits", "s"])


async def told(target: RunningModel, gate: Gate, *requests: Any) -> tuple[Stream, Any]:
    """The first call, held before its verdict, with calls on condition that wait for it."""
    stream = Stream(target)
    (first,) = await stream.send(call_of(0, len(PROMPT)))
    await gate.reached()
    await stream.tell(*requests)
    await until(lambda: len(target.host.sequences.get("s").waiting) == len(requests))
    return stream, first


async def test_the_call_whose_condition_is_met_begins_on_the_device_thread(
    targets: dict[str, RunningModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["none"]
    first, _ = await waited(target, "waits", 0)
    proposed: Any = {"proposal": {"token_ids": [3, 4]}}
    await open_sequence(target, "proposes", sampling=SAMPLING)
    await target.hot.VerifyProposal(renamed(call_of(0, len(PROMPT)), "proposes"))
    expected = await target.hot.VerifyProposal(renamed(after(first, **proposed), "proposes"))
    await open_sequence(target, "s", sampling=SAMPLING)
    submitted = Submitted(target, monkeypatch)
    right = conditional(after(first, **proposed), "s", 0, 0, first.next_token_id)
    wrong = conditional(after(first), "s", 0, 0, (first.next_token_id + 1) % VOCABULARY)
    with Gate(target) as gate:
        stream, verdict = await told(target, gate, wrong, right)
    assert decided((await verdict).response) == decided(first)
    await until(last_step(target, 1))
    second = await target.hot.VerifyProposal(after(first, **proposed))
    assert decided(second) == decided(expected) and submitted.steps == [0]
    await stream.close()
    await close(target, names=["waits", "proposes", "s"])


@pytest.mark.parametrize("moved", ["appended", "back", "beyond", "token", "step"])
async def test_a_call_that_is_no_simple_one_is_left_to_the_event_loop(
    targets: dict[str, RunningModel], moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves the sequence, or is a bad one."""
    target = targets["none"]
    first, _ = await waited(target, "waits", 0)
    call = after(first)
    if moved == "appended":
        call.appended_token_ids.extend([1, 2])
    elif moved == "step":
        call.step = 0
    elif moved == "token":
        call.proposal.token_ids.append(VOCABULARY)
    else:
        call.base_length += -2 if moved == "back" else 1
    await open_sequence(target, "s", sampling=SAMPLING)
    submitted = Submitted(target, monkeypatch)
    with Gate(target) as gate:
        stream, verdict = await told(target, gate, conditional(call, "s", 0, 0, first.next_token_id))
    await verdict
    if moved == "step":
        assert target.host.sequences.get("s").last_step == 0  # refused, and nothing else
        assert (await target.hot.VerifyProposal(after(first))).step == 1
    elif moved in ("appended", "back"):
        await until(last_step(target, 1))
        assert (await target.hot.VerifyProposal(call)).length == call.base_length + len(call.appended_token_ids) + 1
    else:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await target.hot.VerifyProposal(call)
        assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
    assert 1 in submitted.steps or moved == "token"
    await stream.close()
    await close(target, names=["waits", "s"])


@pytest.mark.parametrize("closes", ["before", "after"])
async def test_a_sequence_that_is_closed_before_the_event_loop_knows_leaves_nothing(
    targets: dict[str, RunningModel], closes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device thread has begun with its next step, before or after it learns of the close."""
    target = targets["chains"]
    assert isinstance(target.host, Verifier)
    turns, settled = target.host.engine._turns, list[Callable[[], object]]()
    begun, go_on = list[Any](), target.host.go_on
    monkeypatch.setattr(target.host, "go_on", lambda *args: begun.append(go_on(*args)) or begun[-1])
    await open_sequence(target, "s", sampling=SAMPLING)
    with Gate(target) as gate:
        first = asyncio.ensure_future(target.hot.VerifyProposal(promised(3)))
        await gate.reached()
        monkeypatch.setattr(turns, "_tell", settled.append)
        if closes == "before":
            await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))
    await until(lambda: bool(settled))
    if closes == "after":
        await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))
    monkeypatch.undo()
    for settle in tuple(settled):
        settle()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await first
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert [work.future.cancelled() for work, _ in begun] == ([] if closes == "before" else [True])
    await target.check_clean()


async def test_a_pass_that_fails_is_tried_again_by_the_call(
    targets: dict[str, RunningModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["chains"]
    expected = await waited(target, "waits", 3)
    await open_sequence(target, "s", sampling=SAMPLING)
    with Gate(target) as gate:
        first = asyncio.ensure_future(target.hot.VerifyProposal(promised(3)))
        await gate.reached()
        turns = gate._turns
        advance, failures = gate._advance, list[int]()

        def fail_once(works: Any, logits: Any) -> None:
            if works[0].call.step == 1 and not failures:
                failures.append(1)
                raise ValueError("as the test asked")
            advance(works, logits)

        gate._advance = fail_once
    turns.advance = fail_once
    verdict = await first
    await until(lambda: bool(failures) and not target.host.sequences.get("s").is_busy)
    assert target.host.sequences.get("s").last_step == 0
    assert decided(await target.hot.VerifyProposal(after(verdict, 3))) == decided(expected[1])
    turns.advance = advance
    await close(target, names=["waits", "s"])
