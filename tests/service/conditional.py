"""Sequences of a target, its calls before the verdicts that they depend on, and a gate before its verdicts."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from specpair.sequences import conditional_calls
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from target_service.verifier import Verifier
from tests.services import RunningModel

VOCABULARY = 40
PROMPT = [5, 2, 7, 2, 11]


def decided(verdict: Any) -> Any:
    """A verdict without its times, and without what the cache had kept of other sequences."""
    copy = target_pb.VerifyProposalResponse()
    copy.CopyFrom(verdict)
    times = ("queue_time_us", "compute_time_us", "proposing_time_us", "rollback_time_ns")
    passing = (*times, "batch_token_count", "cached_token_count")
    for name in passing:
        copy.ClearField(name)
    return copy


def renamed(request: Any, name: str) -> Any:
    """The same call of another sequence."""
    copy = target_pb.VerifyProposalRequest()
    copy.CopyFrom(request)
    copy.sequence_id = name
    return copy


def conditional(request: Any, name: str, step: int, accepted: int, token: int) -> Any:
    """The call with a condition, on the sequence of this name."""
    copy = renamed(request, name)
    copy.condition.CopyFrom(target_pb.Condition(step=step, accepted_count=accepted, next_token_id=token))
    return copy


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.001)


async def open_sequence(model: RunningModel, name: str, **fields: Any) -> None:
    await model.sequences.OpenSequence(pb.OpenSequenceRequest(sequence_id=name, token_ids=PROMPT, **fields))


async def close(*models: RunningModel, names: list[str]) -> None:
    for model in models:
        for name in names:
            await model.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))
        await model.check_clean()


def counted(target: RunningModel) -> dict[str, float]:
    """Conditional calls by what became of them, as the metrics say."""
    name = "specpair_target_conditional_calls_total"
    found = {
        outcome.value: target.registry.get_sample_value(name, {"outcome": outcome.value})
        for outcome in conditional_calls.ConditionOutcome
    }
    return {outcome: value for outcome, value in found.items() if value is not None}


class Stream:
    """A hot stream of the target, whose answers are given to those who sent the calls."""

    def __init__(self, target: RunningModel):
        self._target = target
        self._stream = target.hot.StreamVerifications()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    async def send(self, *requests: Any) -> list[Awaitable[Any]]:
        """Calls in one message; waits for none of the answers."""
        first = 1 + len(self._answers)
        calls: Any = [{"call_id": first + index, "request": request} for index, request in enumerate(requests)]
        for call in calls:
            self._answers[call["call_id"]] = asyncio.get_running_loop().create_future()
        await self._stream.write(target_pb.StreamVerificationsRequest(calls=calls))
        return [self._answers[call["call_id"]] for call in calls]

    async def tell(self, *requests: Any) -> None:
        """Calls that need no answer."""
        await self.write(*(target_pb.VerificationCall(request=each, is_unanswered=True) for each in requests))

    async def decided(self, *requests: Any) -> dict[str, float]:
        """Tells calls that are decided on at once, and returns what became of them: outcomes with their numbers."""
        before = counted(self._target)
        await self.tell(*requests)
        await until(lambda: sum(counted(self._target).values()) == sum(before.values()) + len(requests))
        return {name: count - before[name] for name, count in counted(self._target).items() if count != before[name]}

    async def write(self, *calls: target_pb.VerificationCall) -> None:
        """Calls whose answers nobody waits for."""
        await self._stream.write(target_pb.StreamVerificationsRequest(calls=calls))

    async def close(self) -> None:
        await self._stream.done_writing()
        await self._reader

    async def _read(self) -> None:
        async for message in self._stream:
            for answer in message.answers:
                if answer.call_id in self._answers:  # nobody waits for others
                    self._answers[answer.call_id].set_result(answer)


class Gate:
    """Holds the device thread between a forward pass and its verdicts."""

    def __init__(self, target: RunningModel):
        assert isinstance(target.host, Verifier)
        self._turns = target.host.engine._turns
        self._advance = self._turns.advance
        self._reached, self._open = threading.Event(), threading.Event()
        self._fails = self._poisons = False

    def __enter__(self) -> "Gate":
        def advance(works: Any, logits: Any) -> None:
            self._reached.set()
            self._open.wait()
            if self._fails:
                raise ValueError("as the test asked")
            self._advance(works, logits.fill_(float("nan")) if self._poisons else logits)

        self._turns.advance = advance
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._turns.advance = self._advance

    async def reached(self) -> None:
        await asyncio.to_thread(self._reached.wait)

    def fail(self) -> None:
        """The verdicts fail once the gate is open."""
        self._fails = True

    def poison(self) -> None:
        """The logits are not finite."""
        self._poisons = True
