"""Proposals with which the target begins before their distributions are here: the same verdicts, and none without."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from coordinator.peers.target_peer import TargetPeer
from specpair.v1 import sampling_pb2
from specpair.v1 import target_service_pb2 as target_pb
from target_service import judging, late_rows, servicer, unjudged
from target_service.late_rows import WithheldBody
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
from tests.service.late import OPTIONS as LIKE_IT
from tests.service.late import Begun, outcomes, pass_is_over, withheld
from tests.service.proposals import draft, folder, ordinary_rounds, target
from tests.services import RunningModel

__all__ = ["draft", "folder", "target"]

Code = grpc.StatusCode
STEPS, K = 10, 3
OPTIONS: dict[str, dict[str, Any]] = {
    "token": {"rule": sampling_pb2.ACCEPTANCE_RULE_TOKEN},
    "block": {"rule": sampling_pb2.ACCEPTANCE_RULE_BLOCK},
    "dense": {"encoding": sampling_pb2.DISTRIBUTION_ENCODING_DENSE},
    "penalised": {"sampling": {"seed": 9, "frequency_penalty": 0.7, "top_k": 12}},
    "coupled": {"rule": sampling_pb2.ACCEPTANCE_RULE_COUPLED},
}


@pytest.fixture
async def begun(draft: RunningModel, target: RunningModel) -> AsyncIterator[Begun]:
    await open_sequence(target, "plain", **LIKE_IT)
    await open_sequence(draft, "plain", sampling=LIKE_IT["sampling"])
    rounds = await ordinary_rounds(draft, target, "plain", 3, K)
    stream = Stream(target)
    own = Begun(target, stream, rounds, "late")
    await own.begin()
    yield own
    await stream.close()
    await close(draft, target, names=["plain", "late"])


@pytest.mark.parametrize("comes", ["in_time", "waited_for"])
@pytest.mark.parametrize("options", OPTIONS)
async def test_verdicts_are_the_same_bits(draft: RunningModel, target: RunningModel, options: str, comes: str) -> None:
    fields: Any = {"sampling": {"temperature": 1.0, "seed": 9}, "logprobs": 2, **OPTIONS[options]}
    for name in ("plain", "late"):
        await open_sequence(target, name, **fields)
    await open_sequence(draft, "plain", **{name: value for name, value in fields.items() if name != "logprobs"})
    rounds = await ordinary_rounds(draft, target, "plain", STEPS, K)
    assert len({verdict.accepted_count for _, verdict in rounds}) > 1
    before, stream = outcomes(target), Stream(target)
    verdicts = [await target.hot.VerifyProposal(renamed(rounds[0][0], "late"))]
    for request, _ in rounds[1:]:
        call = withheld(request, "late", verdicts[-1])
        if comes == "in_time":
            with Gate(target) as gate:
                await stream.tell(call)
                await gate.reached()
                (answer,) = await stream.send(renamed(request, "late"))
                await until(lambda: isinstance(target.host.sequences.get("late").last_body, bytes))
        else:
            await stream.tell(call)
            await pass_is_over(target, "late", request.step)
            (answer,) = await stream.send(renamed(request, "late"))
        verdicts.append((await answer).response)
    assert [decided(verdict) for verdict in verdicts] == [decided(verdict) for _, verdict in rounds]
    after = outcomes(target)
    assert {name: after[name] - before[name] for name in after} == {**dict.fromkeys(after, 0), comes: STEPS - 1}
    await stream.close()
    await close(draft, target, names=["plain", "late"])


async def test_a_repetition_is_the_same_call_and_other_distributions_are_another(begun: Begun) -> None:
    answers = [await begun.target.hot.VerifyProposal(begun.request) for _ in range(2)]
    assert answers[0] == answers[1] and decided(answers[0]) == decided(begun.expected)
    begun.request.proposal.distributions.one_hot.SetInParent()
    await refused(begun.target.hot.VerifyProposal(begun.request), Code.ALREADY_EXISTS, "CONFLICTING_BODY")


@pytest.mark.parametrize("change", ["plain", "other tokens", "shorter"])
async def test_another_call_of_the_step_takes_its_place(begun: Begun, change: str) -> None:
    """As if the target had not begun: a draft that died brings no distributions."""
    other, before = begun.request, outcomes(begun.target)
    if change == "plain":
        other.ClearField("proposal")
    elif change == "other tokens":
        other.proposal.CopyFrom(type(other.proposal)(token_ids=[3, 3]))
    else:
        other.proposal.CopyFrom(type(other.proposal)(token_ids=other.proposal.token_ids[:1]))
    await begun.open("fresh")
    expected = await begun.target.hot.VerifyProposal(renamed(other, "fresh"))
    assert decided(await begun.target.hot.VerifyProposal(other)) == decided(expected)
    assert outcomes(begun.target)["withdrawn"] == before["withdrawn"] + 1
    await begun.close("fresh")


async def test_distributions_that_are_invalid_are_refused_and_the_right_ones_still_taken(begun: Begun) -> None:
    bad = renamed(begun.request, begun.name)
    bad.proposal.distributions.sparse.total_log2 = 31
    await refused(begun.target.hot.VerifyProposal(bad), Code.INVALID_ARGUMENT, "INVALID_DISTRIBUTION")
    assert isinstance(begun.held.last_body, WithheldBody)
    assert decided(await begun.target.hot.VerifyProposal(begun.request)) == decided(begun.expected)


async def test_a_step_whose_distributions_never_come_counts_as_not_taken(begun: Begun) -> None:
    """So its sequence is idle, and its lease can end."""
    await begun.pass_is_over()
    assert begun.held.is_busy
    begun.held.last_body.late.withdraw()  # ends the wait as its limit would
    await until(lambda: not begun.held.is_busy)
    assert begun.held.last_step == 0
    assert list(begun.held.cached.tokens) == [*PROMPT, *begun.held.cached.tokens[len(PROMPT) : begun.held.length]]
    assert decided(await begun.target.hot.VerifyProposal(begun.request)) == decided(begun.expected)


async def test_a_sequence_that_is_closed_as_soon_as_its_step_has_begun_is_gone(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another call of the step is decoded in a thread: the step has not even begun to wait for its pass."""
    target, name = begun.target, "brief"
    await begun.open(name)
    store, other = target.host.sequences, renamed(begun.request, name)
    other.ClearField("proposal")
    decoding = iter([False, True])

    async def slowly(request: target_pb.VerifyProposalRequest, make: Any) -> Any:
        if request.sequence_id == name and next(decoding, False):
            met = counted(target)["met"]
            loop = asyncio.get_running_loop()
            start, closed = store._start, loop.create_future()

            def start_and_close(held: Any, *args: Any, **kwargs: Any) -> Any:
                task = start(held, *args, **kwargs)
                store.drop(held)
                closed.set_result(None)
                return task

            monkeypatch.setattr(store, "_start", start_and_close)
            await begun.stream.tell(withheld(begun.request, name, begun.first[1]))
            await closed
            monkeypatch.undo()
            assert counted(target)["met"] >= met
        return make()

    monkeypatch.setattr(servicer, "beside_the_loop", slowly)
    async with asyncio.timeout(10):
        await refused(target.hot.VerifyProposal(other), Code.NOT_FOUND, "SEQUENCE_NOT_FOUND")


async def test_a_wait_ends_by_itself() -> None:
    with pytest.raises(late_rows.WithdrawnError):
        await late_rows.LateRows().wait(within=0.01)


async def test_closing_ends_the_wait(begun: Begun) -> None:
    await begun.pass_is_over()
    await begun.close(begun.name)
    await refused(begun.target.hot.VerifyProposal(begun.request), Code.NOT_FOUND, "SEQUENCE_NOT_FOUND")


async def test_a_failure_of_the_late_judgement_is_said_and_the_step_can_be_tried_again(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun.pass_is_over()

    def fail(*_: Any) -> None:
        raise ValueError("as the test asked")

    with monkeypatch.context() as broken:
        broken.setattr(judging, "add_probabilities", fail)
        await refused(begun.target.hot.VerifyProposal(begun.request), Code.INTERNAL, "FORWARD_FAILED")
    assert decided(await begun.target.hot.VerifyProposal(begun.request)) == decided(begun.expected)


@pytest.mark.parametrize("end", ["comes", "closes"])
async def test_a_pass_that_is_not_finite_leaves_nothing_in_the_cache(begun: Begun, end: str) -> None:
    """Whether or not anybody brings the distributions: nobody might look at its logits."""
    target, name = begun.target, "poisoned"
    await begun.open(name)
    held, request = target.host.sequences.get(name), renamed(begun.request, name)
    with Gate(target) as gate:
        gate.poison()
        await begun.stream.tell(withheld(request, name, begun.first[1]))
        await gate.reached()
    await until(lambda: not held.is_busy)
    assert held.last_step == 0 and held.cached.valid_length == 0
    if end == "comes":
        assert decided(await target.hot.VerifyProposal(request)) == decided(begun.expected)
    await begun.close(name)


async def test_what_waits_has_a_limit(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it steps count as not taken, and their calls begin anew."""
    target, name, before = begun.target, "one-more", outcomes(begun.target)
    await begun.pass_is_over()
    assert begun.kept_bytes == 4 * (K + 1) * VOCABULARY
    monkeypatch.setattr(unjudged, "MOST_BYTES", begun.kept_bytes + 1)
    await begun.open(name)
    request, held = renamed(begun.request, name), target.host.sequences.get(name)
    await begun.stream.tell(withheld(request, name, begun.first[1]))
    await until(lambda: outcomes(target)["withdrawn"] == before["withdrawn"] + 1)
    assert held.last_step == 0 and not held.is_busy
    assert decided(await target.hot.VerifyProposal(request)) == decided(begun.expected)
    assert decided(await target.hot.VerifyProposal(begun.request)) == decided(begun.expected)
    await until(lambda: begun.kept_bytes == 0)
    await begun.close(name)


async def test_the_coordinator_sees_for_how_long_the_target_had_worked(begun: Begun) -> None:
    """What it asked the draft for meanwhile was not waited for."""
    peer, name, seconds = TargetPeer(begun.target.address), "watched", 0.3
    await begun.open(name)
    with Gate(begun.target) as gate:
        await begun.stream.tell(withheld(begun.request, name, begun.first[1]))
        await gate.reached()
        await asyncio.sleep(seconds)
    await pass_is_over(begun.target, name, 1)
    proposal, length = begun.request.proposal, begun.request.base_length
    verdict = await peer.verify(name, 1, length, proposal, 10.0, True, was_begun=True)
    assert 0.0 < verdict.begun_before <= verdict.times.compute
    plain = await peer.verify(name, 2, begun.expected.length, None, 10.0)
    assert plain.begun_before == 0.0
    await peer.close()
    await begun.close(name)


async def test_a_failure_in_the_late_judgement_leaves_a_suspect_without_a_cache(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of a pass."""
    await begun.pass_is_over()

    def fail(*_: Any) -> None:
        raise ValueError("as the test asked")

    with monkeypatch.context() as broken:
        broken.setattr(judging, "add_probabilities", fail)
        await refused(begun.target.hot.VerifyProposal(begun.request), Code.INTERNAL, "FORWARD_FAILED")
    assert begun.held.cached.is_suspect and begun.held.cached.valid_length == 0


async def test_the_next_call_on_condition_begins_with_a_late_verdict(begun: Begun) -> None:
    """Not when the pass is over, before there is one."""
    target, name, verdict = begun.target, "another", begun.expected
    await begun.open(name)
    following = target_pb.VerifyProposalRequest(
        sequence_id=name, step=2, base_length=verdict.length, include_probabilities=True
    )
    met, held = counted(target)["met"], target.host.sequences.get(name)
    with Gate(target) as gate:
        await begun.stream.tell(withheld(begun.request, name, begun.first[1]))
        await gate.reached()
        nothing = conditional(following, name, 1, 0, 0)  # what a work without a verdict looks like
        nothing.base_length = begun.request.base_length + K  # the sequence still has the proposed tokens
        await begun.stream.tell(nothing, conditional(following, name, 1, verdict.accepted_count, verdict.next_token_id))
        await until(lambda: len(held.waiting) == 2)
    await pass_is_over(target, name, 1)
    assert counted(target)["met"] == met + 1, "only the one without its distributions has begun"
    assert held.last_step == 1 and held.begun is None
    assert decided(await target.hot.VerifyProposal(renamed(begun.request, name))) == decided(verdict)
    await until(lambda: counted(target)["met"] == met + 2)
    assert held.last_step == 2
    await target.hot.VerifyProposal(following)
    await begun.close(name)


async def test_calls_that_wait_for_the_verdict_before_begin_on_the_device_thread(
    draft: RunningModel, target: RunningModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the verdict is known first, and where the next pass begins."""
    begun: list[int] = []
    go_on = Verifier.go_on

    def noting(verifier: Verifier, before: Any, decode: Any) -> Any:
        found = go_on(verifier, before, decode)
        begun.extend([found[0].call.step] if found is not None and found[0].call.late is not None else [])
        return found

    monkeypatch.setattr(Verifier, "go_on", noting)
    fields: Any = {"sampling": {"seed": 9}, "rule": OPTIONS["block"]["rule"]}
    for name in ("plain", "late"):
        await open_sequence(target, name, **fields)
    await open_sequence(draft, "plain", **fields)
    rounds = await ordinary_rounds(draft, target, "plain", STEPS, K)
    before, stream, verdicts = outcomes(target), Stream(target), []
    for step, (request, expected) in enumerate(rounds):
        (answer,) = await stream.send(renamed(request, "late"))
        if step < STEPS - 1:
            await stream.tell(withheld(rounds[step + 1][0], "late", expected))
        verdicts.append((await answer).response)
    assert [decided(verdict) for verdict in verdicts] == [decided(verdict) for _, verdict in rounds]
    after = outcomes(target)
    assert after["in_time"] + after["waited_for"] > before["in_time"] + before["waited_for"]
    assert begun, "none was met where the device thread could begin with it"
    await stream.close()
    await close(draft, target, names=["plain", "late"])


@pytest.mark.parametrize("way", ["unary", "tree"])
async def test_withheld_distributions_are_refused_elsewhere(begun: Begun, way: str) -> None:
    """In a call that brings none later, and for a tree."""
    await begun.target.hot.VerifyProposal(begun.request)
    verdict = begun.expected
    call = target_pb.VerifyProposalRequest(sequence_id=begun.name, step=2, base_length=verdict.length)
    call.proposal.token_ids.extend([1, 2])
    call.proposal.distributions.withheld.SetInParent()
    if way == "tree":
        call.proposal.parent_indices.extend([-1, -1])
        call.condition.CopyFrom(
            target_pb.Condition(step=1, accepted_count=verdict.accepted_count, next_token_id=verdict.next_token_id)
        )
        assert await begun.stream.decided(call) == {"met": 1}
        assert begun.held.last_step == 1, "what is wrong with it is said to the ordinary call"
        call.ClearField("condition")
        call.proposal.ClearField("parent_indices")
    found = await refused(begun.target.hot.VerifyProposal(call), Code.INVALID_ARGUMENT, "INVALID_DISTRIBUTION")
    assert found["field"] == "proposal.distributions.withheld"
