"""A target goes on without a proposal where none is there and others would leave the sequence behind."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from specpair.engine.going_on_plain import GoingOnPlain
from specpair.v1 import target_service_pb2 as target_pb
from target_service.verifier import Verifier
from tests.service.conditional import PROMPT, Gate, Stream, close, conditional, decided, open_sequence, renamed, until
from tests.service.targets_with_heads import VOCABULARY, running_targets
from tests.services import RunningModel

GREEDY: dict[str, Any] = {"sampling": {"temperature": 0.0, "seed": 4}}
COUPLED: dict[str, Any] = {"sampling": {"temperature": 1.0, "seed": 4}, "rule": "ACCEPTANCE_RULE_COUPLED"}
FREE = {"greedy": GREEDY, "coupled": COUPLED}


@pytest.fixture(scope="module")
async def targets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningModel]]:
    async with running_targets(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["pays", "does not pay"])
def pays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it pays to go on without a proposal, as the test wants it."""
    monkeypatch.setattr(GoingOnPlain, "pays", lambda *_: request.param)
    return request.param


def call_of(step: int, length: int, proposed: list[int], **fields: Any) -> Any:
    proposal: Any = {"token_ids": proposed} if proposed else None
    return target_pb.VerifyProposalRequest(sequence_id="s", step=step, base_length=length, proposal=proposal, **fields)


async def plainly(target: RunningModel, name: str, options: dict[str, Any], steps: int) -> list[Any]:
    """The verdicts of plain calls, one after the other."""
    await open_sequence(target, name, **options)
    verdicts: list[Any] = []
    for step in range(steps):
        length = verdicts[-1].length if verdicts else len(PROMPT)
        verdicts.append(await target.hot.VerifyProposal(renamed(call_of(step, length, []), name)))
    await close(target, names=[name])
    return verdicts


async def first_verdict(target: RunningModel, call: Any, *waiting: Any) -> Any:
    """The verdict of the call, while these calls wait for it."""
    stream = Stream(target)
    with Gate(target) as gate:
        (answer,) = await stream.send(call)
        await gate.reached()
        await stream.tell(*waiting)
        await until(lambda: len(target.host.sequences.get("s").waiting) == len(waiting) + call.may_go_on_plain)
    response = (await answer).response
    await stream.close()
    return response


@pytest.mark.parametrize("kind", FREE)
async def test_it_goes_on_and_says_so(targets: dict[str, RunningModel], kind: str, pays: bool) -> None:
    target, options = targets["none"], FREE[kind]
    expected = await plainly(target, "plain", options, 3)
    await open_sequence(target, "s", **options)
    verdict = await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True))
    assert verdict.has_gone_on_plain is pays and verdict.next_token_id == expected[0].next_token_id
    if pays:
        await until(lambda: target.host.sequences.get("s").last_step == 1)
    second = await target.hot.VerifyProposal(call_of(1, verdict.length, []))
    third = await target.hot.VerifyProposal(call_of(2, second.length, [expected[2].next_token_id]))
    assert decided(second) == decided(expected[1]) and third.next_token_id != -1 and third.accepted_count == 1
    repeated = await target.hot.VerifyProposal(call_of(2, second.length, [expected[2].next_token_id]))
    assert decided(repeated) == decided(third)
    await close(target, names=["s"])


async def test_its_answer_says_so_again_if_it_was_lost(targets: dict[str, RunningModel], pays: bool) -> None:
    target = targets["none"]
    await open_sequence(target, "s", **GREEDY)
    call = call_of(0, len(PROMPT), [], may_go_on_plain=True)
    verdict = await first_verdict(target, call)
    for repeated in (call, call_of(0, len(PROMPT), [])):  # what may follow is no part of the call
        assert decided(await target.hot.VerifyProposal(repeated)) == decided(verdict)
    await close(target, names=["s"])


async def test_another_call_of_the_step_is_refused(targets: dict[str, RunningModel], pays: bool) -> None:
    target = targets["none"]
    await open_sequence(target, "s", **GREEDY)
    verdict = await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True))
    other = call_of(1, verdict.length, [3])
    if pays:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await target.hot.VerifyProposal(other)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    else:
        assert (await target.hot.VerifyProposal(other)).step == 1
    await close(target, names=["s"])


async def test_a_call_that_waits_for_the_verdict_comes_first(targets: dict[str, RunningModel], pays: bool) -> None:
    target = targets["none"]
    expected = await plainly(target, "plain", GREEDY, 1)
    token, length = expected[0].next_token_id, expected[0].length
    await open_sequence(target, "s", **GREEDY)
    right = conditional(call_of(1, length, [3, 4]), "s", 0, 0, token)
    wrong = conditional(call_of(1, length, []), "s", 0, 0, (token + 1) % VOCABULARY)
    verdict = await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True), wrong, right)
    assert not verdict.has_gone_on_plain
    await until(lambda: target.host.sequences.get("s").last_step == 1)
    assert (await target.hot.VerifyProposal(call_of(1, length, [3, 4]))).step == 1
    await close(target, names=["s"])


async def test_only_calls_that_are_not_met_wait_in_vain(targets: dict[str, RunningModel], pays: bool) -> None:
    target = targets["none"]
    expected = await plainly(target, "plain", GREEDY, 1)
    await open_sequence(target, "s", **GREEDY)
    wrong = (expected[0].next_token_id + 1) % VOCABULARY
    waiting = conditional(call_of(1, expected[0].length, [3]), "s", 0, 0, wrong)
    verdict = await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True), waiting)
    assert verdict.has_gone_on_plain is pays
    await close(target, names=["s"])


@pytest.mark.parametrize("rule", ["ACCEPTANCE_RULE_TOKEN", "ACCEPTANCE_RULE_BLOCK"])
async def test_where_the_output_depends_on_proposals_it_is_refused(targets: dict[str, RunningModel], rule: str) -> None:
    """Whether a proposal is there in time may depend on its tokens (docs/exactness.md, rule 8)."""
    target = targets["none"]
    await open_sequence(target, "s", sampling={"temperature": 1.0, "seed": 4}, rule=rule)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await target.hot.VerifyProposal(call_of(0, len(PROMPT), [], may_go_on_plain=True))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "may_go_on_plain" in (refused.value.details() or "")
    await close(target, names=["s"])


async def test_nothing_begins_after_a_token_that_ends_the_output(
    targets: dict[str, RunningModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GoingOnPlain, "pays", lambda *_: True)
    target = targets["none"]
    expected = await plainly(target, "plain", GREEDY, 1)
    sampling = {**GREEDY["sampling"], "stop_token_ids": [expected[0].next_token_id]}
    await open_sequence(target, "s", sampling=sampling)
    verdict = await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True))
    assert not verdict.has_gone_on_plain and target.host.sequences.get("s").last_step == 0
    await close(target, names=["s"])


async def test_a_step_that_fails_is_tried_again_by_its_call(
    targets: dict[str, RunningModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GoingOnPlain, "pays", lambda *_: True)
    target = targets["none"]
    assert isinstance(target.host, Verifier)
    expected = await plainly(target, "plain", GREEDY, 2)
    await open_sequence(target, "s", **GREEDY)
    turns, failures = target.host.engine._turns, list[int]()
    advance = turns.advance

    def fail_once(works: Any, logits: Any) -> None:
        if works[0].call.step == 1 and not failures:
            failures.append(1)
            raise ValueError("as the test asked")
        advance(works, logits)

    monkeypatch.setattr(turns, "advance", fail_once)
    verdict = await target.hot.VerifyProposal(call_of(0, len(PROMPT), [], may_go_on_plain=True))
    await until(lambda: bool(failures) and not target.host.sequences.get("s").is_busy)
    assert verdict.has_gone_on_plain and target.host.sequences.get("s").last_step == 0
    assert decided(await target.hot.VerifyProposal(call_of(1, verdict.length, []))) == decided(expected[1])
    await asyncio.sleep(0)
    await close(target, names=["s"])


@pytest.mark.parametrize("early", ["for this answer", "for another one", "none"])
async def test_a_target_knows_which_sequences_missed(
    targets: dict[str, RunningModel], monkeypatch: pytest.MonkeyPatch, early: str
) -> None:
    """Their next proposal has still to be made, so no pass waits for them as for others."""
    monkeypatch.setattr(GoingOnPlain, "pays", lambda *_: False)
    target = targets["none"]
    token = (await plainly(target, "plain", GREEDY, 1))[0].next_token_id
    await open_sequence(target, "s", **GREEDY)
    other = (token + 1) % VOCABULARY
    condition = ("s", 0, 0, token if early == "for this answer" else other)
    waiting = [] if early == "none" else [conditional(call_of(1, len(PROMPT) + 1, []), *condition)]
    await first_verdict(target, call_of(0, len(PROMPT), [], may_go_on_plain=True), *waiting)
    assert target.host.sequences.get("s").cached.absences.has_missed is (early == "for another one")
    await close(target, names=["s"])
