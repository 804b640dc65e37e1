"""A caller of a draft that works ahead: it sends calls on a hot stream and keeps what is pushed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import sequence_service_pb2
from tests.services import RunningModel

PROMPT = [5, 9, 2, 7, 1]
TIMEOUT = 30.0
ORDER: dict[str, Any] = {"max_outcomes": 8, "num_speculative_tokens": 4, "max_length": 4096}

Outcome = tuple[int, int]
"""Accepted count and next token."""


def request_of(
    sequence_id: str, step: int, base: int, appended: list[int], fields: dict[str, Any]
) -> pb.ProposeTokensRequest:
    return pb.ProposeTokensRequest(
        sequence_id=sequence_id,
        step=step,
        base_length=base,
        appended_token_ids=appended,
        **{"num_speculative_tokens": 4, **fields},
    )


class AheadCaller:
    """One stream to a draft."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._answers: dict[int, asyncio.Future[pb.ProposalAnswer]] = {}
        self._arrived = asyncio.Event()
        self._writing = asyncio.Lock()
        self.blocks: dict[tuple[str, int], dict[Outcome, pb.AheadBlock]] = {}
        """Pushed blocks by sequence and step."""
        self.unneeded: list[pb.ProposalAnswer] = []
        """Answers to calls that need none."""

    async def read(self) -> None:
        """Reads what the draft sends, until it is cancelled."""
        async for message in self._stream:
            assert message.answers or message.ahead_blocks
            for answer in message.answers:
                if answer.call_id:
                    self._answers[answer.call_id].set_result(answer)
                else:
                    self.unneeded.append(answer)
            for block in message.ahead_blocks:
                outcome = (block.accepted_count, block.next_token_id)
                self.blocks.setdefault((block.sequence_id, block.step), {})[outcome] = block
            self._arrived.set()

    async def call(self, sequence_id: str, step: int, base: int, appended: list[int], **fields: Any) -> Any:
        """The response to one call; an error of the call is an assertion."""
        call_id = 1 + len(self._answers)
        self._answers[call_id] = asyncio.get_running_loop().create_future()
        await self._write(
            pb.ProposalCall(call_id=call_id, request=request_of(sequence_id, step, base, appended, fields))
        )
        answer = await asyncio.wait_for(self._answers[call_id], TIMEOUT)
        assert answer.WhichOneof("outcome") == "response", answer.error
        return answer.response

    async def tell(self, sequence_id: str, step: int, base: int, appended: list[int], **fields: Any) -> None:
        """A call that needs no answer."""
        request = request_of(sequence_id, step, base, appended, {"has_proposal": True, **fields})
        await self._write(pb.ProposalCall(request=request, is_unanswered=True))

    async def _write(self, call: pb.ProposalCall) -> None:
        async with self._writing:
            await self._stream.write(pb.StreamProposalsRequest(calls=[call]))

    async def prepared(self, sequence_id: str, step: int, count: int) -> dict[Outcome, pb.AheadBlock]:
        """The blocks for a step, once there are `count`."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.blocks.get((sequence_id, step), {})) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return dict(self.blocks[sequence_id, step])  # more may come


@asynccontextmanager
async def ahead_caller(draft: RunningModel) -> AsyncIterator[AheadCaller]:
    """A stream to the draft; it ends with the context."""
    stream = draft.hot.StreamProposals()
    caller = AheadCaller(stream)
    reader = asyncio.create_task(caller.read())
    try:
        yield caller
    finally:
        stream.cancel()
        reader.cancel()
        await asyncio.wait([reader])


async def open_sequence(draft: RunningModel, name: str, tokens: list[int], **fields: Any) -> None:
    """Opens a sequence of the draft."""
    request = sequence_service_pb2.OpenSequenceRequest(sequence_id=name, token_ids=tokens, **fields)
    await draft.sequences.OpenSequence(request)


async def close_sequence(draft: RunningModel, name: str) -> None:
    await draft.sequences.CloseSequence(sequence_service_pb2.CloseSequenceRequest(sequence_id=name))


async def asked(draft: RunningModel, fields: dict[str, Any], tokens: list[int], step: int, **call: Any) -> Any:
    """What an ordinary call on a fresh sequence with these tokens is answered with."""
    await open_sequence(draft, "fresh", tokens, prompt_length=len(PROMPT), **fields)
    request = pb.ProposeTokensRequest(
        sequence_id="fresh", step=step, base_length=len(tokens), **{"num_speculative_tokens": 4, **call}
    )
    answer = await draft.hot.ProposeTokens(request)
    await close_sequence(draft, "fresh")
    return answer
