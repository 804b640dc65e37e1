"""Sequences with which a target has begun before the distributions of their proposals are there."""

from typing import Any

from specpair.v1 import sequence_service_pb2
from target_service.late_rows import LateOutcome, WithheldBody
from target_service.verifier import Verifier
from tests.service.conditional import Stream, conditional, open_sequence, renamed, until
from tests.services import RunningModel

OPTIONS: dict[str, Any] = {"sampling": {"seed": 9}, "logprobs": 2}


def outcomes(target: RunningModel) -> dict[str, float]:
    """Such proposals by when their distributions came, as the metrics say."""
    name = "specpair_target_late_distributions_total"
    return {each.value: target.registry.get_sample_value(name, {"outcome": each.value}) or 0.0 for each in LateOutcome}


def withheld(request: Any, name: str, verdict: Any) -> Any:
    """The call on the condition of the verdict before, without its distributions."""
    call = conditional(request, name, verdict.step, verdict.accepted_count, verdict.next_token_id)
    call.proposal.distributions.withheld.SetInParent()
    return call


async def pass_is_over(target: RunningModel, name: str, step: int) -> None:
    """Until the work of the step has left the device thread, without a verdict."""
    held = target.host.sequences.get(name)
    await until(lambda: held.last_step == step and held.work is not None and held.work.done())


class Begun:
    """A sequence with which the target has begun the second step, without its distributions."""

    def __init__(self, target: RunningModel, stream: Stream, rounds: list[tuple[Any, Any]], name: str):
        self.target, self.stream, self.name = target, stream, name
        self.request, self.expected = renamed(rounds[1][0], name), rounds[1][1]
        self.first = rounds[0]

    @property
    def held(self) -> Any:
        return self.target.host.sequences.get(self.name)

    async def open(self, name: str) -> None:
        """Opens a sequence like it, which has taken the first step."""
        await open_sequence(self.target, name, **OPTIONS)
        await self.target.hot.VerifyProposal(renamed(self.first[0], name))

    async def close(self, name: str) -> None:
        await self.target.sequences.CloseSequence(sequence_service_pb2.CloseSequenceRequest(sequence_id=name))

    async def begin(self) -> None:
        await self.open(self.name)
        assert await self.stream.decided(withheld(self.request, self.name, self.first[1])) == {"met": 1}
        assert isinstance(self.held.last_body, WithheldBody)

    @property
    def kept_bytes(self) -> int:
        """Logits of all works that wait to be judged."""
        assert isinstance(self.target.host, Verifier)
        return self.target.host._unjudged.byte_count

    async def pass_is_over(self) -> None:
        await pass_is_over(self.target, self.name, self.request.step)
