"""Invalid names and metadata."""

from typing import Any

import grpc.aio

from specpair.v1 import sequence_service_pb2 as sequences
from tests.hostile.attack import Attack, open_request
from tests.hostile.limits import MAX_ID_LENGTH
from tests.hostile.methods import COMMON_METHODS, MODELS, OWN_METHODS, method_of
from tests.hostile.mutation import varint
from tests.hostile.positions import HOT, hot_request
from tests.hostile.valid import message_for
from tests.hostile.verdicts import BAD_FIELD, NO_HEALTH, NOT_FOUND, OK, ORDERLY, TOO_LARGE

NAMES_EACH = 12
_ILLEGAL = [
    "",
    "\x00",
    "a\nb",
    "a\x1b[2Jb",
    "\x7f",
    "\u202e",
    "\u2028",
    "a\u0000b",
    "\ue000",
    "x" * (MAX_ID_LENGTH + 1),
    "x" * 100_000,
    "é" * (MAX_ID_LENGTH + 1),
    "\U000e0001",
]
_LEGAL = [" ", "x" * MAX_ID_LENGTH, "é" * MAX_ID_LENGTH, "../../etc/passwd", "'; DROP TABLE", "%s%n", "\U0001f600"]


async def send_names(attack: Attack) -> None:
    """Sequence ids that are illegal, and some that look it."""
    random = attack.random
    for _ in range(NAMES_EACH):
        endpoint, illegal = random.choice(MODELS), random.choice(_ILLEGAL)
        refused = frozenset({BAD_FIELD})
        requests: list[tuple[str, Any]] = [
            ("OpenSequence", open_request(illegal, [1])),
            ("CloseSequence", sequences.CloseSequenceRequest(sequence_id=illegal)),
            ("RollbackSequence", sequences.RollbackSequenceRequest(sequence_id=illegal, length=1)),
            ("ForkSequence", sequences.ForkSequenceRequest(sequence_id="a", forked_sequence_id=illegal)),
            (HOT[endpoint], hot_request(endpoint, illegal, 0, 1)),
        ]
        name, request = random.choice(requests)
        await attack.send(method_of(endpoint, name), request, refused)
    endpoint = random.choice(MODELS)
    legal = f"{random.choice(_LEGAL)} {attack.name()}"[-MAX_ID_LENGTH:]
    await attack.send(method_of(endpoint, HOT[endpoint]), hot_request(endpoint, legal, 0, 1), frozenset({NOT_FOUND}))
    await attack.send(method_of(endpoint, "OpenSequence"), open_request(legal, [1]), frozenset({OK}))


async def send_broken_text(attack: Attack) -> None:
    """Strings that are not UTF-8."""
    random = attack.random
    for _ in range(NAMES_EACH):
        broken = random.choice([b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"a\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
        method = random.choice([method for method in OWN_METHODS if method.name in ("OpenSequence", "CloseSequence")])
        await attack.send(method, b"\x0a" + varint(len(broken)) + broken, frozenset({BAD_FIELD}))


async def send_metadata(attack: Attack) -> None:
    """Metadata that is long, binary, or looks like ours; what gRPC's client itself refuses is not sent."""
    random = attack.random
    for _ in range(NAMES_EACH):
        method = random.choice([*OWN_METHODS, *COMMON_METHODS])
        message: Any = b""
        if method in OWN_METHODS:
            message = message_for(random, method.name, "nobody", attack.name(), 0)
        metadata: Any = random.choice(
            [
                [("authorization", random.choice(["Bearer", "Bearer " + "x" * 5000, "Basic Og==", "bearer  ", ""]))],
                [("traceparent", random.choice(["00-" + "0" * 32, "x" * 4000, "ff-ff-ff-ff", "00-" + "g" * 52]))],
                [("x-bin", random.randbytes(300)), ("grpc-trace-bin", random.randbytes(7))],
                [("grpc-tags-bin", random.randbytes(40))],
                [(f"k{i}", "v" * 20) for i in range(100)],
                [("x", "y" * random.choice([7000, 9000, 20_000, 100_000]))],
                [("grpc-status-details-bin", b"\x08\x0d\x12\x00")],
                [("grpc-previous-rpc-attempts", "99999999999999999999")],
                [("x-request-id", "\\..\\..\\%0d%0a")],
                [("te", "gzip")],
            ]
        )
        await attack.send(method, message, ORDERLY | {NO_HEALTH, TOO_LARGE}, metadata=grpc.aio.Metadata(*metadata))
