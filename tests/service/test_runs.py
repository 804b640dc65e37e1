"""A run: several tokens without a proposal in one answer, with the bits of as many calls."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from specpair.speculation.trees.depths import depths
from specpair.v1 import proposal_pb2
from specpair.v1 import sequence_service_pb2 as sequences_pb
from specpair.v1 import target_service_pb2 as pb
from tests.service.conditional import PROMPT, Gate, close, open_sequence, until
from tests.service.distributions import RULES
from tests.service.targets_with_heads import running_targets
from tests.service.test_going_on import Submitted
from tests.services import RunningModel

COUNT = 12
PLAIN: dict[str, Any] = {"temperature": 0.0, "seed": 1}
SAMPLED: dict[str, Any] = {
    "temperature": 0.9,
    "seed": 5,
    "repetition_penalty": 1.3,
    "frequency_penalty": 0.5,
    "min_p": 0.01,
    "logit_bias": {3: 1.0},
    "stop_token_ids": [2],
    "min_tokens": 20,
}


@pytest.fixture(scope="module")
async def targets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningModel]]:
    async with running_targets(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest.fixture
def target(targets: dict[str, RunningModel]) -> RunningModel:
    return targets["none"]


def call(name: str, step: int, length: int, run_length: int, following: int | None = None) -> pb.VerifyProposalRequest:
    """The call of a run whose first step is `step`, after `length` tokens; `following` is the length of the next one,
    if that is promised."""
    continuation = None if following is None else pb.Continuation(run_length=following)
    return pb.VerifyProposalRequest(
        sequence_id=name, step=step, base_length=length, run_length=run_length, continuation=continuation
    )


def given(answer: pb.VerifyProposalResponse) -> list[int]:
    return [answer.next_token_id, *answer.run_token_ids]


async def tokens_of(target: RunningModel, name: str, runs: list[int], *, promised: bool = False) -> tuple[Any, Any]:
    """The tokens and logprobs of an open sequence in runs of these lengths; each is promised with the one before, if
    any is."""
    tokens: list[int] = []
    logprobs: list[Any] = []
    step = 0
    for place, count in enumerate(runs):
        following = runs[place + 1] if promised and place + 1 < len(runs) else None
        answer = await target.hot.VerifyProposal(call(name, step, len(PROMPT) + len(tokens), count, following))
        tokens += given(answer)
        logprobs += answer.logprobs
        assert answer.length == len(PROMPT) + len(tokens)
        assert answer.step == step
        step += count
        if following is not None:
            await until(lambda last=step: target.host.sequences.get(name).last_step == last)
    return tokens, logprobs


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("sampling", [PLAIN, {"temperature": 1.0, "seed": 9}, SAMPLED])
async def test_runs_have_the_bits_of_single_calls(target: RunningModel, sampling: dict[str, Any], rule: str) -> None:
    expected = None
    for number, runs in enumerate(([1] * COUNT, [COUNT], [1, 4, 2, 5], [3, 3, 3, 3])):
        for promised in (False, True):
            name = f"{number} {promised}"
            await open_sequence(target, name, sampling=sampling, logprobs=2, rule=RULES[rule])
            found = await tokens_of(target, name, runs, promised=promised)
            expected = expected or found
            assert found == expected
            await close(target, names=[name])
    assert expected is not None
    assert len(expected[0]) == len(expected[1]) == COUNT


async def test_a_promised_run_begins_on_the_device_thread(
    target: RunningModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_sequence(target, "a", sampling=PLAIN)
    submitted = Submitted(target, monkeypatch)
    with Gate(target) as gate:
        first = asyncio.ensure_future(target.hot.VerifyProposal(call("a", 0, len(PROMPT), 5, following=4)))
        await gate.reached()
    assert len(given(await first)) == 5
    await until(lambda: target.host.sequences.get("a").last_step == 5)
    second = await target.hot.VerifyProposal(call("a", 5, len(PROMPT) + 5, 4))
    assert len(given(second)) == 4 and submitted.steps == [0]
    await close(target, names=["a"])


async def test_runs_share_passes_with_others(target: RunningModel) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        await open_sequence(target, name, sampling={"temperature": 1.0, "seed": seed})
    alone = [(await tokens_of(target, name, [1] * 6))[0] for name in ("a", "b")]
    await close(target, names=["a", "b"])
    for name, seed in (("a", 1), ("b", 2)):
        await open_sequence(target, name, sampling={"temperature": 1.0, "seed": seed})
    with Gate(target):
        calls = [target.hot.VerifyProposal(call(name, 0, len(PROMPT), 6)) for name in ("a", "b")]
        await until(lambda: all(target.host.sequences.get(name).work is not None for name in ("a", "b")))
        await asyncio.sleep(0)  # the works of a turn of the loop are handed over after it
    answers = [await one for one in calls]
    assert [given(answer) for answer in answers] == alone
    assert all(answer.batch_token_count >= 2 for answer in answers)
    await close(target, names=["a", "b"])


async def test_a_token_that_ends_the_output_ends_the_run(target: RunningModel) -> None:
    await open_sequence(target, "a", sampling=PLAIN)
    (tokens, _) = await tokens_of(target, "a", [8])
    stop = next(token for place, token in enumerate(tokens) if place >= 2 and token not in tokens[:place])
    await open_sequence(target, "b", sampling={**PLAIN, "stop_token_ids": [stop]})
    answer = await target.hot.VerifyProposal(call("b", 0, len(PROMPT), 8, following=4))
    assert given(answer) == tokens[: tokens.index(stop) + 1]
    assert answer.length == len(PROMPT) + len(given(answer))
    with Gate(target):  # a pass would stop here
        assert target.host.sequences.get("b").last_step == 0
    await close(target, names=["a", "b"])


async def test_a_run_ends_before_its_time_is_over(target: RunningModel) -> None:
    await open_sequence(target, "a", sampling=PLAIN)
    (tokens, _) = await tokens_of(target, "a", [12])
    await open_sequence(target, "b", sampling=PLAIN)
    request = call("b", 0, len(PROMPT), 12, following=4)
    request.run_seconds = 1e-6
    first = await target.hot.VerifyProposal(request)
    assert given(first) == tokens[:1]
    await until(lambda: target.host.sequences.get("b").last_step == 1)  # goes on where it ended
    second = await target.hot.VerifyProposal(call("b", 1, first.length, 4))
    assert given(second) == tokens[1:5]
    request = call("b", 5, second.length, 7)
    request.run_seconds = 60.0
    assert given(await target.hot.VerifyProposal(request)) == tokens[5:12]
    await close(target, names=["a", "b"])


async def test_a_lost_answer_is_repeated_and_another_run_conflicts(target: RunningModel) -> None:
    await open_sequence(target, "a", sampling={"temperature": 1.0, "seed": 3})
    first = await target.hot.VerifyProposal(call("a", 0, len(PROMPT), 5))
    assert await target.hot.VerifyProposal(call("a", 0, len(PROMPT), 5)) == first
    with pytest.raises(grpc.aio.AioRpcError) as conflict:
        await target.hot.VerifyProposal(call("a", 0, len(PROMPT), 4))
    assert conflict.value.code() is grpc.StatusCode.ALREADY_EXISTS
    for step in (1, 4):  # the run has used their draws
        with pytest.raises(grpc.aio.AioRpcError) as stale:
            await target.hot.VerifyProposal(call("a", step, first.length, 3))
        assert f"step {step} is past; the last one was 4" in str(stale.value.details())
    assert len(given(await target.hot.VerifyProposal(call("a", 5, first.length, 3)))) == 3
    await close(target, names=["a"])


async def test_a_sequence_that_is_closed_in_a_run_leaves_nothing(target: RunningModel) -> None:
    await open_sequence(target, "a", sampling=PLAIN)
    with Gate(target):
        running = target.hot.VerifyProposal(call("a", 0, len(PROMPT), 64))
        await until(lambda: target.host.sequences.get("a").last_step == 0)
        await target.sequences.CloseSequence(sequences_pb.CloseSequenceRequest(sequence_id="a"))
    with pytest.raises(grpc.aio.AioRpcError):
        await running
    await target.check_clean()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run_length": 65}, "run_length"),
        ({"run_length": 5, "step": 2**64 - 4}, "not so many steps left"),
        ({"run_length": 5, "run_seconds": 61.0}, "run_seconds"),
        ({"run_length": 5, "run_seconds": float("nan")}, "run_seconds"),
        ({"run_length": 2, "feature_layers": [0]}, "with feature_layers"),
        ({"run_length": 2, "max_forced_tokens": 1}, "with max_forced_tokens"),
        ({"run_length": 2, "include_probabilities": True}, "with include_probabilities"),
        ({"continuation": {"run_length": 65}}, "continuation.run_length"),
        ({"feature_layers": [0], "continuation": {"run_length": 2}}, "continuation.run_length"),
    ],
)
async def test_what_is_no_run_is_refused(target: RunningModel, changes: dict[str, Any], problem: str) -> None:
    await open_sequence(target, "a", sampling=PLAIN)
    request = pb.VerifyProposalRequest(**{"sequence_id": "a", "step": 8, "base_length": len(PROMPT), **changes})
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await target.hot.VerifyProposal(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert problem in str(refused.value.details())
    await close(target, names=["a"])


@pytest.mark.parametrize(
    ("kind", "rule"), [("chains", "token"), ("chains", "block"), ("chains", "coupled"), ("trees", "coupled")]
)
async def test_a_run_with_a_head_is_its_rounds_one_by_one(
    targets: dict[str, RunningModel], kind: str, rule: str
) -> None:
    """The same tokens, counts and last proposal; and a repeated call finds its answer."""
    target = targets[kind]
    for name in ("a", "b"):
        await open_sequence(target, name, sampling={"temperature": 1.0, "seed": 11}, rule=RULES[rule])
    proposal, length, tokens, counts = proposal_pb2.Proposal(), len(PROMPT), list[int](), list[tuple[int, ...]]()
    fed = target.host.engine.statistics.batch_tokens
    before = fed.total
    for step in range(1, 10):
        verdict = await target.hot.VerifyProposal(
            pb.VerifyProposalRequest(
                sequence_id="a", step=step, base_length=length, proposal=proposal, next_proposal_count=3
            )
        )
        counts.append(counted(proposal, verdict))
        tokens += [*(proposal.token_ids[index] for index in verdict.accepted_path), verdict.next_token_id]
        proposal, length = verdict.next_proposal, verdict.length
    alone, before = fed.total - before, fed.total
    request = call("b", 1, len(PROMPT), 9)
    request.next_proposal_count = 3
    run = await target.hot.VerifyProposal(request)
    assert given(run) == tokens and run.length == length
    assert fed.total - before == alone, "the accepted path of a tree is not fed again"
    parts = [run.run_proposed_counts, run.run_accepted_counts, run.run_tree_token_counts, run.run_ended_at_leaf]
    assert list(zip(*(parts if kind == "trees" else parts[:2]), strict=True)) == [
        one if kind == "trees" else one[:2] for one in counts[1:]
    ]
    assert any(accepted for _, accepted, *_ in counts) and decided_alike(run.next_proposal, proposal)
    assert kind == "chains" or {is_leaf for *_, size, is_leaf in counts if size} == {True, False}
    assert await target.hot.VerifyProposal(request) == run
    await close(target, names=["a", "b"])


def counted(proposal: proposal_pb2.Proposal, verdict: pb.VerifyProposalResponse) -> tuple[int, int, int, bool]:
    """The depth of a proposal, what was accepted, its tokens if it is a tree, and whether a leaf of it was reached."""
    parents, path = list(proposal.parent_indices), [-1, *verdict.accepted_path]
    if not parents:
        return len(proposal.token_ids), verdict.accepted_count, 0, False
    return max(depths(parents)), verdict.accepted_count, len(parents), path[-1] not in parents


def decided_alike(one: proposal_pb2.Proposal, other: proposal_pb2.Proposal) -> bool:
    return (list(one.token_ids), list(one.parent_indices)) == (list(other.token_ids), list(other.parent_indices))


async def test_a_fork_uses_no_draw_of_a_run_again(target: RunningModel) -> None:
    """With the same seed: the tokens that it shares were drawn with all steps of the run."""
    await open_sequence(target, "a", sampling={"temperature": 1.0, "seed": 3})
    length = (await target.hot.VerifyProposal(call("a", 0, len(PROMPT), 5))).length
    fork = sequences_pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b", length=length)
    await target.sequences.ForkSequence(fork)
    with pytest.raises(grpc.aio.AioRpcError) as stale:
        await target.hot.VerifyProposal(call("b", 4, length, 1))
    assert "step 4 is past; the last one was 4" in str(stale.value.details())
    assert len(given(await target.hot.VerifyProposal(call("b", 5, length, 1)))) == 1
    await close(target, names=["a", "b"])


async def test_a_run_that_would_not_fit_is_refused(target: RunningModel) -> None:
    room = target.host.sequences.limits.max_model_len
    await target.sequences.OpenSequence(
        sequences_pb.OpenSequenceRequest(sequence_id="a", token_ids=[1] * (room - 2), sampling=PLAIN)
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await target.hot.VerifyProposal(call("a", 3, room - 2, 4))
    assert "at most" in str(refused.value.details())
    assert len(given(await target.hot.VerifyProposal(call("a", 3, room - 2, 3)))) == 3
    await close(target, names=["a"])
