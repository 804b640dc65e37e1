"""OpenAI's endpoints over Serving."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from coordinator.choices import merge
from coordinator.http.answer import Answer
from coordinator.http.disconnects import ClientGoneError, unless_gone
from coordinator.http.event_stream import EventStream
from coordinator.http.failures import failure_response
from coordinator.http.forms import ChatForm, CompletionForm, Form
from coordinator.http.front_end import FrontEnd
from coordinator.http.logprobs import TokenText
from coordinator.http.messages import chat_request, completion_requests
from coordinator.http.models import check_model
from coordinator.http.outputs import Outputs
from coordinator.http.parameters import ChatParameters, CompletionParameters, GenerationParameters
from coordinator.serving import Serving
from specpair.errors import InvalidFieldError
from specpair.tracing import TRACEPARENT
from specpair.v1 import coordinator_service_pb2 as pb

CLIENT_GONE = 499
"""What nginx calls it; nobody reads it."""

router = APIRouter(prefix="/v1")

Responses = AsyncGenerator[tuple[int, pb.GenerateTokensResponse], None]


@router.post("/completions")
async def create_completion(request: Request, parameters: CompletionParameters) -> Response:
    """Goes on from one or several prompts."""
    serving = serving_of(request, parameters)
    requests = completion_requests(parameters)
    check_prompt_count(len(requests), parameters.best_of or parameters.n or 1, serving.output_limit)
    form = CompletionForm(
        token_text=token_text_of(serving),
        has_logprobs=parameters.logprobs is not None,
        has_prompt_logprobs=parameters.prompt_logprobs is not None,
        echo=bool(parameters.echo),
    )
    return await answer(request, serving, parameters, requests, form)


@router.post("/chat/completions")
async def create_chat_completion(request: Request, parameters: ChatParameters) -> Response:
    """Answers the last message of a conversation."""
    serving = serving_of(request, parameters)
    form = ChatForm(
        token_text=token_text_of(serving),
        has_logprobs=bool(parameters.logprobs),
        has_prompt_logprobs=parameters.prompt_logprobs is not None,
    )
    return await answer(request, serving, parameters, [chat_request(parameters)], form)


def check_prompt_count(prompt_count: int, outputs_each: int, limit: int) -> None:
    """Refuses what could never be served, however long it waits. Raises InvalidFieldError."""
    if prompt_count > 1 and prompt_count * outputs_each > limit:
        problem = (
            f"has {prompt_count} prompts, {outputs_each} outputs each; at most {limit} outputs are generated at once"
        )
        raise InvalidFieldError("prompt", problem, limit=limit)


def serving_of(request: Request, parameters: GenerationParameters) -> Serving:
    """What serves the request. Raises UnknownModelError, and what FrontEnd.serving does."""
    front_end: FrontEnd = request.app.state.front_end
    check_model(parameters.model, front_end.serving)
    return front_end.serving


def token_text_of(serving: Serving) -> TokenText:
    tokenizer = serving.pair.target.tokenizer
    return (lambda token_id: "") if tokenizer is None else tokenizer.token_text


async def answer(
    request: Request,
    serving: Serving,
    parameters: GenerationParameters,
    requests: Sequence[pb.GenerateTokensRequest],
    form: Form,
) -> Response:
    """The answer to a checked body: a stream if it wants one."""
    answer = Answer(
        form=form,
        outputs=Outputs(max(parameters.n or 1, 1)),
        request_id=request.state.request_id,
        model=serving.pair.target.info.model_name,
    )
    responses = generate(serving, requests, answer.request_id, request.headers.get(TRACEPARENT, ""))
    is_chat = isinstance(form, ChatForm)
    options, stop = parameters.stream_options, request.app.state.front_end.grace_is_over
    if parameters.stream:
        include_usage = bool(options and options.include_usage)
        return EventStream(chunks(answer, responses, include_usage), stop, is_chat=is_chat)
    try:
        await unless_gone(request.receive, stop, collect(answer, responses))
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE)
    except Exception as error:
        return failure_response(error, is_chat=is_chat)
    return JSONResponse(answer.body())


async def generate(
    serving: Serving, requests: Sequence[pb.GenerateTokensRequest], request_id: str, trace_context: str
) -> Responses:
    """The responses to all requests as they come, each with the index of its request; one that fails ends them all."""
    arrival = time.perf_counter()
    sources = [serving.generate(request, arrival, request_id, trace_context) for request in requests]
    if len(sources) > 1:
        async with aclosing(merge(sources)) as merged:
            async for item in merged:
                yield item
        return
    async with aclosing(sources[0]) as responses:
        async for response in responses:
            yield 0, response


async def collect(answer: Answer, responses: Responses) -> None:
    async with aclosing(responses):
        async for prompt_index, response in responses:
            answer.outputs.add(prompt_index, response)


async def chunks(answer: Answer, responses: Responses, include_usage: bool) -> AsyncGenerator[dict[str, Any], None]:
    async with aclosing(responses):
        async for prompt_index, response in responses:
            for chunk in answer.chunks(prompt_index, response):
                yield chunk
    if include_usage:
        yield answer.usage_chunk()
