"""One case: a script of hostile messages made from one seed; its answers are judged as they come."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from google.protobuf.message import Message

from specpair.v1 import sequence_service_pb2 as sequences
from tests.hostile.limits import VOCABULARY
from tests.hostile.methods import MODELS, Method, method_of
from tests.hostile.truth import PROMPTS, Truth
from tests.hostile.verdicts import FULL, OK, ORDERLY, complaint
from tests.hostile.web import WebReply, exchange
from tests.hostile.wire import Reply, Wire

MOST_VIOLATIONS = 50
SHOWN_BYTES = 160


@dataclass
class Tally:
    """Messages sent and verdicts received, over all cases."""

    messages: Counter[str] = field(default_factory=Counter)
    """By kind of case."""
    verdicts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    violation_count: int = 0
    slowest_seconds: float = 0.0
    slowest: str = ""
    """The case and the call that took longest."""
    undone: set[tuple[str, str]] = field(default_factory=set)
    """Endpoints and ids of sequences that may have been opened by calls not waited for."""

    def time(self, seconds: float, what: str) -> None:
        """Notes the time of a call."""
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = seconds, what

    def violate(self, what: str) -> None:
        self.violation_count += 1
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(what)


class CaseFailedError(Exception):
    """A proper call failed; already reported."""


class Attack:
    """The tools of a case."""

    def __init__(
        self, number: int, kind: str, random: Random, wire: Wire, http_address: str, truth: Truth, tally: Tally
    ):
        self.number = number
        self.kind = kind
        self.random = random
        self.wire = wire
        self.truth = truth
        self.tally = tally
        self._http_address = http_address
        self._open: list[tuple[str, str]] = []
        self._names = 0

    async def send(
        self,
        method: Method,
        request: Message | bytes | Sequence[bytes],
        allowed: frozenset[str] = ORDERLY,
        **how: Any,
    ) -> Reply:
        """Sends hostile messages to a method, and checks the verdicts."""
        requests = [to_bytes(request)] if isinstance(request, Message | bytes) else list(request)
        if method.name in ("OpenSequence", "ForkSequence"):
            self._expect_sequences(method, requests)
        self.count(len(requests))
        reply = await self.wire.call(method, requests, **how)
        self.judge(f"{method.endpoint} {method.name}", reply.verdict, reply.text, allowed, requests)
        size = sum(map(len, requests))
        self.tally.time(
            reply.seconds, f"case {self.number} ({self.kind}) {method.endpoint} {method.name}, {size} bytes"
        )
        return reply

    async def web(self, data: bytes | Sequence[bytes], allowed: frozenset[str], **how: Any) -> WebReply:
        """Sends bytes on a new connection to the HTTP port, or pieces of them with pauses."""
        pieces = [data] if isinstance(data, bytes) else list(data)
        self.count(1)
        reply = await exchange(self._http_address, pieces, **how)
        for verdict, text in reply.answers:
            self.judge("http", verdict, text, allowed, pieces)
        return reply

    def count(self, messages: int) -> None:
        self.tally.messages[self.kind] += max(1, messages)

    def judge(self, what: str, verdict: str, text: str, allowed: frozenset[str], requests: Sequence[bytes]) -> None:
        self.tally.verdicts[verdict] += 1
        if (problem := complaint(verdict, text, allowed)) is not None:
            shown = requests[0][:SHOWN_BYTES].hex() if requests else ""
            self.violate(f"{what}: {problem}; the request began with {shown}")

    def violate(self, what: str) -> None:
        self.tally.violate(f"case {self.number} ({self.kind}) {what}")

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.violate(what)

    async def call(self, endpoint: str, name: str, request: Message) -> Any:
        """A proper call that has to succeed; it is not counted."""
        method = method_of(endpoint, name)
        reply = await self.wire.call(method, [to_bytes(request)])
        if reply.verdict != OK:
            if reply.verdict != FULL:
                self.violate(f"a proper {endpoint} {name} was refused: {reply.verdict} {reply.text[:200]!r}")
            raise CaseFailedError
        return method.response_class.FromString(reply.messages[0])

    def name(self) -> str:
        """A new sequence id."""
        self._names += 1
        plain = f"case-{self.number}-{self._names}"
        return f"{plain}-{crc32(plain.encode()):08x}"  # a changed byte must not make it the name of another case

    async def open(self, endpoint: str, prompt: int, **fields: Any) -> str:
        """A proper greedy sequence on one of the prompts whose continuation is known."""
        name = self.name()
        request = open_request(name, list(PROMPTS[prompt]), **fields)
        await self.call(endpoint, "OpenSequence", request)
        self._open.append((endpoint, name))
        return name

    def leave_open(self, endpoint: str, name: str) -> None:
        """A sequence that has to be closed at the end of the run as well: its opening may still be under way."""
        self._open.append((endpoint, name))
        self.tally.undone.add((endpoint, name))

    async def clean_up(self) -> None:
        """Closes the sequences that the case opened or may have opened."""
        for endpoint, name in self._open:
            await close(self.wire, endpoint, name)

    def _expect_sequences(self, method: Method, requests: Sequence[bytes]) -> None:
        for request in requests:
            try:
                message: Any = method.request_class.FromString(request)
            except Exception:  # it opens nothing, then
                continue
            field_name = "sequence_id" if method.name == "OpenSequence" else "forked_sequence_id"
            self.leave_open(method.endpoint, getattr(message, field_name))


def open_request(name: str, token_ids: list[int], **fields: Any) -> sequences.OpenSequenceRequest:
    request = sequences.OpenSequenceRequest(
        sequence_id=name, token_ids=token_ids, sampling={"temperature": 0.0, "seed": 1}, vocab_size=VOCABULARY
    )
    request.MergeFrom(sequences.OpenSequenceRequest(**fields))
    return request


async def close(wire: Wire, endpoint: str, name: str) -> None:
    assert endpoint in MODELS
    request = sequences.CloseSequenceRequest(sequence_id=name)
    await wire.call(method_of(endpoint, "CloseSequence"), [request.SerializeToString()])


def to_bytes(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()
