"""Verdicts of calls that were sent before the verdict that they depend on: the same bits as without."""

from typing import Any

import pytest

from specpair.v1 import sampling_pb2
from specpair.v1 import target_service_pb2 as target_pb
from target_service import servicer
from tests.service.conditional import (
    VOCABULARY,
    Stream,
    close,
    conditional,
    counted,
    decided,
    open_sequence,
    renamed,
    until,
)
from tests.service.proposals import draft, folder, ordinary_rounds, target
from tests.services import RunningModel

__all__ = ["draft", "folder", "target"]

STEPS, K = 14, 3
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}


def guesses(rounds: list[tuple[Any, Any]], name: str, step: int) -> tuple[list[Any], Any]:
    """Wrong guesses of the verdict of `step` with other proposals for the next, and the right one."""
    verdict, request = rounds[step][1], rounds[step + 1][0]
    count, token = verdict.accepted_count, verdict.next_token_id
    wrong = [
        conditional(request, name, step, count, (token + 1) % VOCABULARY),
        conditional(request, name, step, (count + 1) % (K + 1), token),
    ]
    wrong[0].proposal.token_ids[0] ^= 1
    wrong[1].base_length += 1
    return wrong, conditional(request, name, step, count, token)


async def rounds_told(
    target: RunningModel, rounds: list[tuple[Any, Any]], name: str, *, begins: bool = True
) -> list[Any]:
    """The verdicts of the same calls, each told to the target before the verdict that it depends on, and then called in
    the ordinary way."""
    stream = Stream(target)
    verdicts: list[Any] = []
    for step in range(STEPS):
        (pending,) = await stream.send(renamed(rounds[step][0], name))
        await until(lambda step=step: target.host.sequences.get(name).last_step >= step)
        if step < STEPS - 1:
            wrong, right = guesses(rounds, name, step)
            await stream.tell(wrong[0], right, wrong[1])
        verdicts.append((await pending).response)
        if step < STEPS - 1 and begins:
            await until(lambda step=step: target.host.sequences.get(name).last_step == step + 1)
    await stream.close()
    return verdicts


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
async def test_verdicts_are_the_same_bits(
    draft: RunningModel,
    target: RunningModel,
    rule: str,
    temperature: float,
    is_large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where requests are so large that they are decoded in a thread, and dropped if they are on condition."""
    if is_large:
        monkeypatch.setattr(servicer, "MADE_ON_THE_LOOP_BYTES", -1)
    fields: Any = {"sampling": {"temperature": temperature, "seed": 9}, "rule": RULES[rule], "logprobs": 2}
    for name in ("plain", "ahead"):
        await open_sequence(target, name, **fields)
    await open_sequence(draft, "plain", sampling=fields["sampling"], rule=fields["rule"])
    rounds = await ordinary_rounds(draft, target, "plain", STEPS, K)
    assert len({verdict.accepted_count for _, verdict in rounds}) > 1
    before = counted(target)
    verdicts = await rounds_told(target, rounds, "ahead", begins=not is_large)
    assert [decided(verdict) for verdict in verdicts] == [decided(verdict) for _, verdict in rounds]
    after = counted(target)
    assert after["met"] - before["met"] == (0 if is_large else STEPS - 1)
    dropped = ("full",) if is_large else ("not_met", "late")
    assert sum(after[outcome] - before[outcome] for outcome in dropped) == (3 if is_large else 2) * (STEPS - 1)
    await close(draft, target, names=["plain", "ahead"])


async def test_a_call_is_answered_though_the_next_step_begins_while_its_body_is_hashed(
    draft: RunningModel, target: RunningModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large bodies are hashed in a thread."""
    options: Any = {"sampling": {"seed": 9}, "rule": RULES["token"]}
    for name in ("plain", "ahead"):
        await open_sequence(target, name, **options)
    await open_sequence(draft, "plain", **options)
    rounds = await ordinary_rounds(draft, target, "plain", STEPS, K)

    async def slowly(request: target_pb.VerifyProposalRequest, make: Any) -> Any:
        if request.step == 1:
            await until(lambda: target.host.sequences.get("ahead").last_step == 2)
        return make()

    monkeypatch.setattr(servicer, "beside_the_loop", slowly)
    stream = Stream(target)
    (first,) = await stream.send(renamed(rounds[0][0], "ahead"))
    await stream.tell(guesses(rounds, "ahead", 0)[1])
    await first
    (second,) = await stream.send(renamed(rounds[1][0], "ahead"))
    await stream.tell(guesses(rounds, "ahead", 1)[1])
    assert decided((await second).response) == decided(rounds[1][1])
    await stream.close()
    await close(draft, target, names=["plain", "ahead"])
