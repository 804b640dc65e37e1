"""The services' answers to proper requests, read before, during and after the attack."""

from dataclasses import dataclass
from typing import Any

from specpair.v1 import coordinator_service_pb2, draft_service_pb2, sequence_service_pb2
from tests.hostile.limits import VOCABULARY
from tests.hostile.methods import method_of
from tests.hostile.verdicts import OK
from tests.hostile.wire import Wire

PROMPTS = ((5, 6, 7), (100, 7, 100, 7), (4095, 0, 1), tuple(range(40, 52)), (9,))
OUTPUT_LENGTH = 12
PROPOSED = 4
CHECK_NAME = "check"


@dataclass(frozen=True)
class Truth:
    """Greedy tokens after each prompt."""

    outputs: tuple[tuple[int, ...], ...]
    """Of the pair, and so of the target alone."""
    proposals: tuple[tuple[int, ...], ...]
    """Of the draft."""


class NotServedError(Exception):
    """A proper request is refused."""


async def ask(wire: Wire, proposed: int) -> Truth:
    """With as many proposed tokens in a round; 0 for the target alone."""
    return Truth(
        outputs=tuple([await generate(wire, prompt, proposed) for prompt in PROMPTS]),
        proposals=tuple([await propose(wire, index) for index in range(len(PROMPTS))]),
    )


async def generate(wire: Wire, prompt: tuple[int, ...], proposed: int) -> tuple[int, ...]:
    request = coordinator_service_pb2.GenerateTokensRequest(
        token_ids=coordinator_service_pb2.TokenIds(ids=prompt),
        sampling={"temperature": 0.0, "seed": 1},
        max_tokens=OUTPUT_LENGTH,
        ignore_eos=True,
        num_speculative_tokens=proposed,
    )
    answers = await _call(wire, "coordinator", "GenerateTokens", request)
    return tuple(token.id for answer in answers for token in answer.tokens)


async def propose(wire: Wire, index: int) -> tuple[int, ...]:
    """Of the draft alone, on a sequence that is closed again."""
    name = f"{CHECK_NAME}-{index}"
    opening = sequence_service_pb2.OpenSequenceRequest(
        sequence_id=name, token_ids=PROMPTS[index], sampling={"temperature": 0.0, "seed": 1}, vocab_size=VOCABULARY
    )
    await _call(wire, "draft", "OpenSequence", opening)
    request = draft_service_pb2.ProposeTokensRequest(
        sequence_id=name, step=0, base_length=len(PROMPTS[index]), num_speculative_tokens=PROPOSED
    )
    [answer] = await _call(wire, "draft", "ProposeTokens", request)
    await _call(wire, "draft", "CloseSequence", sequence_service_pb2.CloseSequenceRequest(sequence_id=name))
    return tuple(answer.proposal.token_ids)


async def _call(wire: Wire, endpoint: str, name: str, request: Any) -> list[Any]:
    method = method_of(endpoint, name)
    reply = await wire.call(method, [request.SerializeToString()])
    if reply.verdict != OK:
        raise NotServedError(f"{name}: {reply.verdict} {reply.text[:300]}")
    return [method.response_class.FromString(message) for message in reply.messages]
