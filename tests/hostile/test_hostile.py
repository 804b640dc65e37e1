"""A short attack on real services, and that its judge sees what it has to see."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from google.protobuf.message import Message

from tests.hostile.attack import Tally
from tests.hostile.child import faults_in, running_child
from tests.hostile.distributions import bad_proposal
from tests.hostile.extremes import disturb
from tests.hostile.kinds import KINDS, case_of
from tests.hostile.limits import VOCABULARY
from tests.hostile.methods import OWN_METHODS
from tests.hostile.mutation import mutate
from tests.hostile.options import Options
from tests.hostile.report import complaints
from tests.hostile.run import HostileRun, Outcome
from tests.hostile.valid import message_for
from tests.hostile.verdicts import OK, ORDERLY, WRITE_FAILED, complaint
from tests.hostile.web import WebReply

MESSAGES = 2000
SELDOM = frozenset({"RESOURCE_EXHAUSTED/CAPACITY_EXHAUSTED", "INVALID_ARGUMENT/INVALID_GRAMMAR"})
"""Verdicts that so few messages need not meet."""


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_hostile_messages_end_as_the_design_says(tmp_path: Path) -> None:
    async with running_child(tmp_path) as child:
        outcome = await HostileRun(child, Options(seed=2, messages=MESSAGES)).run()
    assert complaints(outcome) == []
    assert outcome.tally.messages.total() >= MESSAGES
    assert outcome.truth_checks >= 2
    verdicts = outcome.tally.verdicts
    expected = ORDERLY - SELDOM
    assert expected <= verdicts.keys(), f"too tame: {verdicts}"


def test_a_case_is_the_same_in_every_run() -> None:
    for number in range(50):
        first, second = (_messages_of(number) for _ in range(2))
        assert first == second
    assert len({case_of(1, number)[0] for number in range(1000)}) >= len(KINDS) - 1


def _messages_of(number: int) -> tuple[str, bytes, bytes]:
    kind, random = case_of(1, number)
    message = message_for(random, "OpenSequence", "a", "b", 0)
    disturb(random, message)
    data = message.SerializeToString()
    return kind, data, mutate(random, data)


def test_every_method_has_a_proper_message_and_every_field_gets_its_turn() -> None:
    random, untouched = Random(5), set()
    for method in OWN_METHODS:
        message: Message = message_for(random, method.name, "a", "b", 0)
        assert isinstance(message, method.request_class)
        untouched |= {(method.name, field.name) for field in message.DESCRIPTOR.fields}
        for _ in range(400):
            before = message_for(random, method.name, "a", "b", 0)
            after = method.request_class.FromString(before.SerializeToString())
            if before.DESCRIPTOR.fields:
                disturb(random, after)
            for field in before.DESCRIPTOR.fields:
                if _value(before, field.name) != _value(after, field.name):
                    untouched.discard((method.name, field.name))
    assert not untouched


def _value(message: Message, name: str) -> str:
    return f"{any(name == field.name for field, _ in message.ListFields())} {getattr(message, name)}"


def test_every_bad_distribution_is_bad() -> None:
    from specpair.errors import InvalidDistributionError
    from specpair.wire.distributions import decode

    for seed in range(500):
        proposal = bad_proposal(Random(seed))
        with pytest.raises(InvalidDistributionError):
            decode(proposal.distributions, list(proposal.token_ids), VOCABULARY)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("UNKNOWN/", "Unexpected <class 'google.protobuf.message.DecodeError'>: Error parsing message"),
        ("INTERNAL/INTERNAL", "internal error"),
        ("HTTP 500", "{}"),
        ("DEADLINE_EXCEEDED/", "Deadline Exceeded"),
        ("INVALID_ARGUMENT/INVALID_FIELD", "cannot read /home/somebody/models/target"),
        ("INVALID_ARGUMENT/INVALID_FIELD", 'File "x", line 7'),
        ("INVALID_ARGUMENT/INVALID_FIELD", "raised in sequence_store.py"),
        ("INVALID_ARGUMENT/INVALID_FIELD", "KeyError: 7"),
        ("INVALID_ARGUMENT/INVALID_FIELD", "torch.Tensor is wrong"),
        ("INVALID_ARGUMENT/INVALID_FIELD", "x" * 100_000),
    ],
)
def test_the_judge_sees_what_is_wrong(verdict: str, text: str) -> None:
    assert complaint(verdict, text, ORDERLY) is not None


def test_the_judge_lets_pass_what_is_right() -> None:
    assert complaint(OK, "anything, as a model may say ValueError", ORDERLY) is None
    assert complaint("INVALID_ARGUMENT/INVALID_FIELD", "sampling.top_p: is nan; it must be above 0", ORDERLY) is None


def test_what_is_left_behind_is_seen() -> None:
    model = {"sequences": 0, "used_blocks": 0, "kept_texts": 0}
    before = {"target": model, "draft": model, "requests": 0, "tasks": 9, "descriptors": 9, "memory_mib": 100}
    assert complaints(Outcome(Tally(), before=before, after=before)) == []
    for name, value in {
        "target": {**model, "sequences": 1},
        "draft": {**model, "used_blocks": 1},
        "requests": 1,
        "tasks": 10,
        "descriptors": 20,
        "memory_mib": 1000,
    }.items():
        assert complaints(Outcome(Tally(), before=before, after={**before, name: value})), name
    untold = Tally(messages=Counter({"noise": 1000}), verdicts=Counter({WRITE_FAILED: 3}))
    assert complaints(Outcome(untold, before=before, after=before))
    slow = Outcome(Tally(), before=before, after=before, longest_health_seconds={"http": 60.0})
    assert complaints(slow)


def test_faults_in_the_log() -> None:
    assert faults_in(["WARNING uvicorn.error Invalid HTTP request received."]) == []
    assert (
        len(faults_in(["ERROR specpair.server.interceptors a call failed", "Traceback (most recent call last):"])) == 2
    )
    gone = "ERROR grpc._cython.cygrpc ExecuteBatchError raised in core by servicer method [/a/b]"
    assert faults_in([gone, "Traceback (most recent call last):", "  ..."]) == []


def test_several_answers_on_one_connection() -> None:
    data = b"HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 400 Bad Request\r\n\r\nno"
    assert WebReply(data).verdicts == ["HTTP 200", "HTTP 400"]
    assert WebReply(b"").verdicts == ["HTTP closed"]
    assert WebReply(b"", has_ended=False).verdicts == ["HTTP open"]
