"""OpenAI's endpoints over Serving."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response

from coordinator.http.answer import Answer
from coordinator.http.answer_parts import answer_parts
from coordinator.http.beams import beam_count
from coordinator.http.descriptions import CHATTED, GENERATED
from coordinator.http.event_stream import EventStream
from coordinator.http.failures import Names, names_of
from coordinator.http.forms import ChatForm, CompletionForm, Form
from coordinator.http.front_end import FrontEnd
from coordinator.http.json_pieces import encode
from coordinator.http.logprobs import TokenBytes, TokenText
from coordinator.http.messages import chat_request, completion_requests
from coordinator.http.models import check_model, served_name
from coordinator.http.outputs import Asked, Outputs
from coordinator.http.parameters import ChatParameters, CompletionParameters, GenerationParameters
from coordinator.http.structures import structure_name
from coordinator.http.unknown_parameters import log_unknown
from coordinator.http.whole_answer import whole_answer
from coordinator.outputs.choices import merge
from coordinator.serving.call import Call
from coordinator.serving.serving import Serving
from specpair.errors import InvalidFieldError
from specpair.tracing import TRACEPARENT
from specpair.v1 import coordinator_service_pb2 as pb

router = APIRouter(prefix="/v1", responses=GENERATED)

Responses = AsyncGenerator[tuple[int, pb.GenerateTokensResponse], None]


@router.post("/completions")
async def create_completion(request: Request, parameters: CompletionParameters) -> Response:
    """Completes one or several prompts."""
    await log_unknown(request, type(parameters))
    serving = serving_of(request, parameters)
    has_encoder = serving.pair.target.info.encoder_decoder is not None
    outputs_each = beam_count(parameters) or parameters.best_of or parameters.n or 1
    check_prompt_count(len(parameters.prompt), outputs_each, serving.request_limit)  # before anything is copied
    requests = completion_requests(parameters, has_encoder=has_encoder)
    form = CompletionForm(
        tokenizer=serving.pair.target.tokenizer,
        token_text=token_text_of(serving),
        has_logprobs=parameters.logprobs is not None,
        has_prompt_logprobs=parameters.prompt_logprobs is not None,
        echo=bool(parameters.echo),
    )
    return await answer(request, serving, parameters, requests, form)


@router.post("/chat/completions", responses=CHATTED)
async def create_chat_completion(request: Request, parameters: ChatParameters) -> Response:
    """Answers the last message of a conversation."""
    await log_unknown(request, type(parameters))
    serving = serving_of(request, parameters)
    parts = answer_parts(parameters, serving.pair)
    form = ChatForm(
        token_text=token_text_of(serving),
        token_bytes=token_bytes_of(serving),
        has_logprobs=bool(parameters.logprobs),
        has_prompt_logprobs=parameters.prompt_logprobs is not None,
        calling=parts.calling,
        reasoning=parts.reasoning,
        shown={token_id: mark for mark, token_id in parts.mark_ids.items()},
    )
    return await answer(request, serving, parameters, [chat_request(parameters, parts)], form)


def check_prompt_count(prompt_count: int, outputs_each: int, limit: int) -> None:
    """Refuses a request for more outputs than can ever run at once. Raises InvalidFieldError."""
    if prompt_count > 1 and prompt_count * outputs_each > limit:
        problem = (
            f"has {prompt_count} prompts, {outputs_each} outputs each; at most {limit} outputs are generated at once"
        )
        raise InvalidFieldError("prompt", problem, limit=limit)


def serving_of(request: Request, parameters: GenerationParameters) -> Serving:
    """The Serving of the front end. Raises UnknownModelError, and what FrontEnd.serving does."""
    front_end: FrontEnd = request.app.state.front_end
    check_model(parameters.model, front_end.serving)
    return front_end.serving


def token_text_of(serving: Serving) -> TokenText:
    tokenizer = serving.pair.target.tokenizer
    return (lambda token_id: "") if tokenizer is None else tokenizer.token_text


def token_bytes_of(serving: Serving) -> TokenBytes:
    tokenizer = serving.pair.target.tokenizer
    return (lambda token_id: None) if tokenizer is None else tokenizer.token_bytes


async def answer(
    request: Request,
    serving: Serving,
    parameters: GenerationParameters,
    requests: Sequence[pb.GenerateTokensRequest],
    form: Form,
) -> Response:
    """The answer to a checked body; a stream if requested."""
    options, stop = parameters.stream_options, request.app.state.front_end.grace_is_over
    asked = Asked(
        n=max(parameters.n or 1, 1),
        echo=form.echo,
        tokenizer=serving.pair.target.tokenizer,
        prompts=[message.token_ids.ids for message in requests],
    )
    answer = Answer(
        form=form,
        outputs=Outputs(asked),
        request_id=request.state.request_id,
        model=served_name(serving),
        include_usage=bool(options and options.include_usage),
    )
    responses = generate(serving, requests, answer, request.headers.get(TRACEPARENT, ""))
    names = sent_names(parameters, is_chat=isinstance(form, ChatForm))
    if parameters.stream:
        return EventStream(chunks(answer, responses), stop, names)
    return await whole_answer(request, whole_body(answer, responses), names)


def sent_names(parameters: GenerationParameters, *, is_chat: bool) -> Names:
    """By which names this request sent what the fields of a message say."""
    names = {**names_of(is_chat=is_chat, structure=structure_name(parameters))}
    if isinstance(parameters, ChatParameters):
        if parameters.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        if parameters.top_logprobs:
            names["logprobs"] = "top_logprobs"
    if parameters.use_beam_search and parameters.num_beams is None:
        names["num_beams"] = "n"
    return names


async def generate(
    serving: Serving, requests: Sequence[pb.GenerateTokensRequest], answer: Answer, trace_context: str
) -> Responses:
    """The responses to all requests as they come, each with the index of its request. One failure ends them all."""
    arrival = time.perf_counter()
    calls = [
        Call(
            request=request,
            arrival=arrival,
            request_id=answer.request_id,
            trace_context=trace_context,
            shares=len(requests),
            is_admitted=len(requests) > 1,
            passed_over=answer.outputs.passed_over,
            reasoning=answer.form.reasoning,
            shown=answer.form.shown,
        )
        for request in requests
    ]
    sources = [serving.generate(call) for call in calls]
    if len(sources) > 1:
        async with serving.admit(requests), aclosing(merge(sources)) as merged:
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
            answer.outputs.add(prompt_index, response)
            await leave_turn(response)
    return await encode(answer.body())


async def chunks(answer: Answer, responses: Responses) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of the body as they come."""
    async with aclosing(responses):
        async for prompt_index, response in responses:
            for chunk in answer.chunks(prompt_index, response):
                yield chunk
            await leave_turn(response)
    if answer.include_usage:
        yield answer.usage_chunk()


async def leave_turn(response: pb.GenerateTokensResponse) -> None:
    """Lets other tasks run between the messages of a long prompt, which come without a pause."""
    if response.prompt_tokens:
        await asyncio.sleep(0)
