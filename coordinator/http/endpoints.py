"""OpenAI's endpoints over Serving."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from coordinator.http.answer_parts import AnswerParts, answer_parts
from coordinator.http.answering import answered
from coordinator.http.beams import beam_count
from coordinator.http.choices_answer import ChoicesAnswer
from coordinator.http.descriptions import CHATTED, GENERATED, RESPONDED
from coordinator.http.forms import ChatForm, CompletionForm, Form
from coordinator.http.front_end import FrontEnd
from coordinator.http.logprobs import TokenBytes, TokenText
from coordinator.http.messages import chat_request, completion_requests
from coordinator.http.models import check_model, served_name
from coordinator.http.output_items import OutputItems
from coordinator.http.outputs import Asked, Outputs
from coordinator.http.parameter_names import response_names, sent_names
from coordinator.http.parameters import ChatParameters, CompletionParameters, GenerationParameters
from coordinator.http.response_answer import ResponseAnswer
from coordinator.http.response_logprobs import ResponseLogprobs
from coordinator.http.response_parameters import ResponseParameters
from coordinator.http.response_request import chat_parameters, echoed
from coordinator.http.unknown_parameters import log_unknown
from coordinator.requests.threads import in_thread
from coordinator.serving.serving import Serving
from specpair.errors import InvalidFieldError
from specpair.v1 import coordinator_service_pb2 as pb

router = APIRouter(prefix="/v1", responses=GENERATED)


@router.post("/completions")
async def create_completion(request: Request, parameters: CompletionParameters) -> Response:
    """Completes one or several prompts."""
    await log_unknown(request, type(parameters))
    serving = serving_of(request, parameters)
    has_encoder = serving.pair.target.info.encoder_decoder is not None
    outputs_each = beam_count(parameters) or parameters.best_of or parameters.n or 1
    check_prompt_count(len(parameters.prompt), outputs_each, serving.request_limit)  # before anything is copied
    messages = completion_requests(parameters, has_encoder=has_encoder)
    form = CompletionForm(
        tokenizer=serving.pair.target.tokenizer,
        token_text=token_text_of(serving),
        has_logprobs=parameters.logprobs is not None,
        has_prompt_logprobs=parameters.prompt_logprobs is not None,
        echo=bool(parameters.echo),
    )
    return await choices(request, serving, parameters, messages, form)


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
        parts=parts,
    )
    return await choices(request, serving, parameters, [chat_request(parameters, parts)], form)


@router.post("/responses", responses=RESPONDED)
async def create_response(request: Request, parameters: ResponseParameters) -> Response:
    """Answers a conversation that comes in items, in items. Nothing of it is stored."""
    await log_unknown(request, type(parameters))
    serving = serving_of(request, parameters)
    as_chat = await in_thread(chat_parameters, parameters)
    parts = answer_parts(as_chat, serving.pair)
    check_stops(as_chat, parts)
    logprobs = ResponseLogprobs(token_text_of(serving), token_bytes_of(serving)) if as_chat.logprobs else None
    answer = ResponseAnswer(
        echo=await in_thread(echoed, parameters),
        items=OutputItems(parts, logprobs),
        outputs=Outputs(Asked()),
        parts=parts,
        request_id=request.state.request_id,
        model=served_name(serving),
    )
    messages = [chat_request(as_chat, parts)]
    names = response_names(as_chat)
    return await answered(request, serving, messages, answer, names, is_stream=bool(parameters.stream))


def check_stops(parameters: ChatParameters, parts: AnswerParts) -> None:
    """Refuses texts and tokens that could end an answer within a call: a response has no way to say that its arguments
    are not whole. Raises InvalidFieldError."""
    for name in ("stop", "stop_token_ids"):
        if parts.calling is not None and getattr(parameters, name):
            raise InvalidFieldError(name, "cannot be combined with tools here, unless tool_choice is none")


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


async def choices(
    request: Request,
    serving: Serving,
    parameters: CompletionParameters | ChatParameters,
    messages: Sequence[pb.GenerateTokensRequest],
    form: Form,
) -> Response:
    """The answer to a checked body, in choices; a stream if requested."""
    options = parameters.stream_options
    asked = Asked(
        n=max(parameters.n or 1, 1),
        echo=form.echo,
        tokenizer=serving.pair.target.tokenizer,
        prompts=[message.token_ids.ids for message in messages],
    )
    answer = ChoicesAnswer(
        form=form,
        outputs=Outputs(asked),
        request_id=request.state.request_id,
        model=served_name(serving),
        include_usage=bool(options and options.include_usage),
    )
    names, is_stream = sent_names(parameters), bool(parameters.stream)
    return await answered(request, serving, messages, answer, names, is_stream=is_stream)
