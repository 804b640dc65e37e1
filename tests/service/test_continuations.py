"""A target goes on by itself where its next call is known: the same bits as if it had waited for it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from specpair.v1 import sequence_service_pb2 as sequences_pb
from specpair.v1 import target_service_pb2 as pb
from tests.service.conditional import PROMPT, Gate, close, decided, open_sequence, until
from tests.service.distributions import RULES
from tests.service.targets_with_heads import VOCABULARY, running_targets
from tests.services import RunningModel, engine_config, running_pair, running_target
from tests.tiny_heads import make_head
from tests.tiny_models import make_model

STEPS = 12
METRIC = "specpair_target_continuations_total"
SAMPLED: dict[str, Any] = {
    "temperature": 0.9,
    "seed": 5,
    "repetition_penalty": 1.1,
    "min_p": 0.01,
    "logit_bias": {3: 1.0},
}


@pytest.fixture(scope="module")
async def targets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningModel]]:
    async with running_targets(tmp_path_factory.mktemp("models")) as running:
        yield running


def counts(target: RunningModel) -> dict[str, float]:
    found = {outcome: target.registry.get_sample_value(METRIC, {"outcome": outcome}) for outcome in ("used", "dropped")}
    return {outcome: value for outcome, value in found.items() if value is not None}


def first_call(name: str, order: int, following: int | None) -> pb.VerifyProposalRequest:
    return call_after(name, 0, len(PROMPT), None, order, following)


def call_after(
    name: str, step: int, length: int, verdict: Any, order: int, following: int | None
) -> pb.VerifyProposalRequest:
    """The call of a step, which repeats what the target proposed with the verdict before; with a continuation unless
    `following` is None."""
    proposal = verdict.next_proposal if verdict is not None and verdict.next_proposal.token_ids else None
    return pb.VerifyProposalRequest(
        sequence_id=name,
        step=step,
        base_length=length,
        proposal=proposal,
        include_probabilities=True,
        next_proposal_count=order,
        next_proposal_min_confidence=0.001 * order,
        continuation=None
        if following is None
        else pb.Continuation(next_proposal_count=following, next_proposal_min_confidence=0.001 * following),
    )


async def rounds(target: RunningModel, name: str, orders: list[int], *, goes_on: bool) -> list[Any]:
    """The verdicts of a sequence that orders so many tokens, round by round."""
    verdicts: list[Any] = []
    call = first_call(name, orders[0], orders[1] if goes_on else None)
    for step in range(STEPS):
        verdicts.append(await target.hot.VerifyProposal(call))
        if goes_on and step + 2 < STEPS:
            await until(lambda step=step: target.host.sequences.get(name).last_step == step + 1)
        following = orders[step + 2] if goes_on and step + 2 < STEPS else None
        call = call_after(name, step + 1, verdicts[-1].length, verdicts[-1], orders[step + 1], following)
    return verdicts


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0, "seed": 1}, {"temperature": 1.0, "seed": 9}, SAMPLED])
@pytest.mark.parametrize("kind", ["none", "chains", "trees"])
async def test_verdicts_are_those_of_a_target_that_waits(
    targets: dict[str, RunningModel], kind: str, sampling: dict[str, Any], rule: str
) -> None:
    target = targets[kind]
    orders = [0] * (STEPS + 1) if kind == "none" else [3, 3, 2, 0, 0, 4, 4, 4, 1, 3, 3, 3, 3]
    used = counts(target)["used"]
    for name in ("waits", "goes on"):
        await open_sequence(target, name, sampling=sampling, logprobs=2, rule=RULES[rule])
    waited = await rounds(target, "waits", orders, goes_on=False)
    assert counts(target)["used"] == used
    found = await rounds(target, "goes on", orders, goes_on=True)
    assert [decided(verdict) for verdict in found] == [decided(verdict) for verdict in waited]
    assert counts(target)["used"] == used + STEPS - 1
    assert kind == "none" or sampling["temperature"] == 0.0 or sum(verdict.accepted_count for verdict in found) > 0
    await close(target, names=["waits", "goes on"])


async def test_nothing_begins_after_a_token_that_ends_the_output(targets: dict[str, RunningModel]) -> None:
    target = targets["none"]
    sampling: dict[str, Any] = {"temperature": 0.0, "seed": 1}
    await open_sequence(target, "a", sampling=sampling)
    tokens = [verdict.next_token_id for verdict in await rounds(target, "a", [0] * (STEPS + 1), goes_on=False)]
    await open_sequence(target, "b", sampling={**sampling, "stop_token_ids": [tokens[0]]})
    await target.hot.VerifyProposal(first_call("b", 0, 0))
    with Gate(target):  # a pass would stop here
        assert target.host.sequences.get("b").last_step == 0
    await close(target, names=["a", "b"])


async def test_a_sequence_that_is_closed_leaves_nothing(targets: dict[str, RunningModel]) -> None:
    target = targets["chains"]
    dropped = counts(target)["dropped"]
    await open_sequence(target, "a", sampling={"seed": 2})
    await target.hot.VerifyProposal(first_call("a", 3, 3))
    await until(lambda: target.host.sequences.get("a").last_step == 1)
    await close(target, names=["a"])
    assert counts(target)["dropped"] == dropped + 1


async def test_a_lost_verdict_is_repeated_and_another_call_conflicts(targets: dict[str, RunningModel]) -> None:
    target = targets["chains"]
    await open_sequence(target, "a", sampling={"seed": 3})
    first = await target.hot.VerifyProposal(first_call("a", 3, 3))
    await until(lambda: target.host.sequences.get("a").last_step == 1)
    assert await target.hot.VerifyProposal(first_call("a", 3, None)) == first
    for other in (
        call_after("a", 1, first.length, None, 3, None),
        call_after("a", 1, first.length, first, 2, None),
        call_after("a", 1, first.length - 1, first, 3, None),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await target.hot.VerifyProposal(other)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    second = await target.hot.VerifyProposal(call_after("a", 1, first.length, first, 3, None))
    assert second.length == first.length + second.accepted_count + 1
    await close(target, names=["a"])


async def test_a_sequence_without_room_waits_for_the_call_that_is_refused(tmp_path: Path) -> None:
    folder = make_model(tmp_path, seed=1, vocab_size=VOCABULARY)
    async with running_target(engine_config(folder, max_model_len=len(PROMPT) + 2)) as target:
        await open_sequence(target, "a", sampling={"seed": 2})
        first = await target.hot.VerifyProposal(first_call("a", 0, 0))
        second = await target.hot.VerifyProposal(call_after("a", 1, first.length, None, 0, 0))
        assert second.length == len(PROMPT) + 2
        third = await target.hot.VerifyProposal(call_after("a", 2, second.length, None, 0, 0))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await target.hot.VerifyProposal(call_after("a", 3, third.length, None, 0, 0))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await close(target, names=["a"])


@pytest.mark.parametrize(
    ("kind", "following", "code", "words"),
    [
        ("chains", {"next_proposal_count": 10_000}, "INVALID_ARGUMENT", "continuation.next_proposal_count"),
        (
            "chains",
            {"next_proposal_min_confidence": 2.0},
            "INVALID_ARGUMENT",
            "continuation.next_proposal_min_confiden",
        ),
        ("none", {"next_proposal_count": 1}, "UNIMPLEMENTED", "continuation.next_proposal_count"),
    ],
)
async def test_bad_continuations_are_refused_and_change_nothing(
    targets: dict[str, RunningModel], kind: str, following: dict[str, Any], code: str, words: str
) -> None:
    target = targets[kind]
    await open_sequence(target, "a", sampling={"seed": 2})
    call = first_call("a", 0, 0)
    call.continuation.CopyFrom(pb.Continuation(**following))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await target.hot.VerifyProposal(call)
    assert refused.value.code() is grpc.StatusCode[code] and words in (refused.value.details() or "")
    assert target.host.sequences.get("a").last_step == -1
    await close(target, names=["a"])


@pytest.mark.parametrize(("tree_tokens", "interval"), [(0, 0.0), (7, 0.0), (0, 1.0)])
async def test_outputs_of_a_pair_go_on_by_themselves_and_are_opened_once(
    tmp_path: Path, tree_tokens: int, interval: float
) -> None:
    """A promise that is broken would have the sequence opened again, and what was begun dropped. Of a run, several
    rounds are one call."""
    model = make_model(tmp_path / "target", num_hidden_layers=3)
    head = str(make_head(tmp_path / "head"))
    config = engine_config(model, head=head, head_tree_tokens=tree_tokens)
    async with running_pair(config, stream_interval=interval) as pair:
        for count in (0, 3, None):
            fields = {} if count is None else {"num_speculative_tokens": count}
            before = counts(pair.target)
            made = await pair.generate([1, 2, 3], 40, ignore_eos=True, rule=RULES["coupled"], **fields)
            after = counts(pair.target)
            rounds = made.summary.speculation.round_count
            least = 2 if interval else rounds - 8
            assert least <= after["used"] - before["used"] <= rounds
            assert after["dropped"] == before["dropped"]
        await pair.check_clean()


async def test_a_sequence_is_forked_once_its_step_is_over(targets: dict[str, RunningModel]) -> None:
    target = targets["none"]
    await open_sequence(target, "a", sampling={"seed": 2})
    verdict = await target.hot.VerifyProposal(first_call("a", 0, 0))
    await until(lambda: target.host.sequences.get("a").last_step == 1 and not target.host.sequences.get("a").is_busy)
    forked = await target.sequences.ForkSequence(
        sequences_pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b", length=len(PROMPT))
    )
    assert forked.length == len(PROMPT) and verdict.length == len(PROMPT) + 1
    await close(target, names=["a", "b"])
