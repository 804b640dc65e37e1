"""Answers a request that was read: generates its outputs, and sends what is made of them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response

from coordinator.http.answer import Answer
from coordinator.http.event_stream import EventStream
from coordinator.http.json_pieces import encode
from coordinator.http.parameter_names import Names
from coordinator.http.whole_answer import whole_answer
from coordinator.outputs.choices import merge
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from specpair.tracing import TRACEPARENT
from specpair.v1 import coordinator_service_pb2 as pb

Responses = AsyncGenerator[tuple[int, pb.GenerateTokensResponse], None]


async def answered(
    request: Request,
    serving: Serving,
    messages: Sequence[pb.GenerateTokensRequest],
    answer: Answer,
    names: Names,
    *,
    is_stream: bool,
) -> Response:
    """The answer to these messages of one request, whole or as a stream. Errors name parameters by `names`."""
    responses = generate(serving, messages, answer, request.headers.get(TRACEPARENT, ""))
    if is_stream:
        return EventStream(chunks(answer, responses), answer, request.app.state.front_end.grace_is_over, names)
    return await whole_answer(request, whole_body(answer, responses), names)


async def generate(
    serving: Serving, messages: Sequence[pb.GenerateTokensRequest], answer: Answer, trace_context: str
) -> Responses:
    """The responses to all messages as they come, each with the index of its message. One failure ends them all."""
    arrival = time.perf_counter()
    calls = [
        Call(
            request=message,
            arrival=arrival,
            request_id=answer.request_id,
            trace_context=trace_context,
            shares=len(messages),
            is_admitted=len(messages) > 1,
            passed_over=answer.outputs.passed_over,
            reasoning=answer.reasoning,
            shown=answer.shown,
        )
        for message in messages
    ]
    sources = [serving.generate(call) for call in calls]
    if len(sources) > 1:
        async with serving.admit(messages), aclosing(merge(sources)) as merged:
            async for item in merged:
                yield item
        return
    async with aclosing(sources[0]) as responses:
        async for response in responses:
            yield 0, response


async def whole_body(answer: Answer, responses: Responses) -> bytes:
    """The whole body, once all responses are received."""
    async with aclosing(responses):
        async for prompt_index, response in responses:
            answer.add(prompt_index, response)
            await leave_turn(response)
    return await encode(answer.body())


async def chunks(answer: Answer, responses: Responses) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of the body as they come."""
    async with aclosing(responses):
        async for prompt_index, response in responses:
            for chunk in answer.chunks(prompt_index, response):
                yield chunk
            await leave_turn(response)
    for chunk in answer.last_chunks():
        yield chunk


async def leave_turn(response: pb.GenerateTokensResponse) -> None:
    """Lets other tasks run between the messages of a long prompt, which come without a pause."""
    if response.prompt_tokens:
        await asyncio.sleep(0)
