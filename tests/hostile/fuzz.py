"""Random bytes and messages for every method."""

from typing import Any

from tests.hostile.attack import Attack
from tests.hostile.extremes import disturb
from tests.hostile.limits import MAX_MESSAGE_BYTES
from tests.hostile.methods import COMMON_METHODS, OWN_METHODS, Method, method_of
from tests.hostile.mutation import mutate, noise
from tests.hostile.truth import PROMPTS
from tests.hostile.valid import message_for
from tests.hostile.verdicts import (
    BAD_FIELD,
    CANCELLED,
    LATE,
    NO_HEALTH,
    NO_METHOD,
    OK,
    ORDERLY,
    TOO_LARGE,
)
from tests.hostile.wire import PATIENCE

MESSAGES_EACH = 12
UNASKED_SECONDS = 0.2
_HOT = ("ProposeTokens", "VerifyProposal", "RollbackSequence", "ForkSequence", "StreamProposals", "StreamVerifications")
_STREAMS = ("StreamProposals", "StreamVerifications")
_QUIET = ("GetModelInfo", "GetTokenizer", "GetPairInfo")
"""Methods whose requests have no fields."""


async def send_noise(attack: Attack) -> None:
    """Bytes that were never a message."""
    random = attack.random
    for _ in range(MESSAGES_EACH):
        method = random.choice([*OWN_METHODS, *COMMON_METHODS])
        await attack.send(method, noise(random), ORDERLY | {NO_HEALTH})


async def send_mutations(attack: Attack) -> None:
    """Proper messages whose bytes were changed; unknown fields are skipped."""
    method, prompt, name = await choose(attack)
    for _ in range(MESSAGES_EACH):
        message = message_for(attack.random, method.name, name, attack.name(), prompt)
        await send(attack, method, mutate(attack.random, message.SerializeToString()))


async def send_extremes(attack: Attack) -> None:
    """Proper messages with some fields at their extremes."""
    method, prompt, name = await choose(attack)
    for _ in range(MESSAGES_EACH):
        message = message_for(attack.random, method.name, name, attack.name(), prompt)
        for _ in range(attack.random.choice([1, 1, 2, 3])):
            if message.DESCRIPTOR.fields:
                disturb(attack.random, message)
        await send(attack, method, message.SerializeToString())


async def choose(attack: Attack) -> tuple[Method, int, str]:
    """A method, with a sequence that is open where it is called."""
    random = attack.random
    loud = [method for method in OWN_METHODS if method.name not in _QUIET]
    method = random.choice([*loud, method_of("coordinator", "GenerateTokens"), random.choice(OWN_METHODS)])
    prompt = random.randrange(len(PROMPTS))
    name = await attack.open(method.endpoint, prompt) if method.name in _HOT else attack.name()
    return method, prompt, name


async def send(attack: Attack, method: Method, data: bytes) -> None:
    reply = await attack.send(method, data)
    if method.name in _STREAMS:
        judge_answers(attack, method, reply.messages, ORDERLY)


def judge_answers(attack: Attack, method: Method, messages: list[bytes], allowed: frozenset[str]) -> list[Any]:
    """The answers on a hot stream, each judged as the status of a unary call would be."""
    answers = [answer for data in messages for answer in answers_in(method, data)]
    for answer in answers:
        verdict = verdict_of(answer)
        text = "\n".join([answer.error.message, *(f"{name}={value}" for name, value in answer.error.metadata.items())])
        attack.judge(method.name, verdict, text, allowed, [])
    return answers


def answers_in(method: Method, data: bytes) -> list[Any]:
    message: Any = method.response_class.FromString(data)
    return list(message.answers)


def verdict_of(answer: Any) -> str:
    """Of one answer on a hot stream, as it is written for a status."""
    if answer.WhichOneof("outcome") != "error":
        return OK
    import grpc

    names = {code.value[0]: code.name for code in grpc.StatusCode}
    reasons = answer.error.DESCRIPTOR.fields_by_name["reason"].enum_type.values_by_number
    reason = reasons[answer.error.reason].name.removeprefix("ERROR_REASON_")
    return f"{names.get(answer.error.code, answer.error.code)}/{reason}"


async def send_wrong_counts(attack: Attack) -> None:
    """No message, or several, to methods that take one; a stream of nothing."""
    random = attack.random
    for _ in range(MESSAGES_EACH):
        method = random.choice(OWN_METHODS)
        message = message_for(random, method.name, attack.name(), attack.name(), 0).SerializeToString()
        requests = random.choice([[], [message] * 2, [b""], [b""] * 3])
        # A call without its message is answered by nobody: grpc.aio waits for its end, or its deadline.
        is_call = bool(requests) or method.name in _STREAMS
        allowed = ORDERLY if is_call else ORDERLY | {CANCELLED, LATE}
        patience = PATIENCE if is_call else UNASKED_SECONDS
        await attack.send(method, requests, allowed, shape="stream_stream", patience=patience)


async def send_to_no_method(attack: Attack) -> None:
    """Methods that do not exist."""
    random = attack.random
    for _ in range(MESSAGES_EACH):
        method = random.choice(OWN_METHODS)
        service, name = method.path[1:].split("/")
        path = random.choice(
            [
                f"/{service}/{name}2",
                f"/{service.lower()}/{name}",
                f"/{service}/",
                f"/{service}/{name}/{name}",
                f"/specpair.v2.{name}/{name}",
                "/" + "x" * random.choice([1, 100, 4000]) + "/y",
                f"/{service}/../{name}",
                f"/{service}/%2e%2e/{name}",
                "/grpc.health.v1.Health/Kill",
            ]
        )
        await attack.send(method, noise(random), frozenset({NO_METHOD}), path=path)


async def send_too_much(attack: Attack) -> None:
    """A message over the limit, which is not read."""
    method = attack.random.choice([method for method in OWN_METHODS if method.name not in _QUIET])
    data = bytes(MAX_MESSAGE_BYTES + attack.random.choice([1, 1000]))
    await attack.send(method, data, frozenset({TOO_LARGE}))


async def send_much(attack: Attack) -> None:
    """Within the limit, but far more than makes sense."""
    method = attack.random.choice([method for method in OWN_METHODS if method.name not in _QUIET])
    field = b"\x0a" if attack.random.random() < 0.5 else b"\x22"
    size = attack.random.choice([100_000, 1_000_000, 4_000_000])
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    filling = attack.random.choice([b"a", b"\x01", b"\x00"])
    await attack.send(method, field + length + filling * size, ORDERLY | {BAD_FIELD})
