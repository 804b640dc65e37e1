"""Turns HTTP parameters into the message that every front end passes to Serving."""

from collections.abc import Iterable, Sequence
from typing import Any

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.beams import set_beams
from coordinator.http.parameters import (
    ChatMessage,
    ChatParameters,
    CompletionParameters,
    GenerationParameters,
    LayoutParameters,
    Prompt,
)
from coordinator.http.refusals import is_given
from coordinator.http.structure_parameters import ToolCall
from coordinator.http.structures import check_text, schema_text, structured_output_of
from coordinator.http.tools import calling_grammar, described
from specpair.errors import InvalidFieldError
from specpair.rpc.messages import drafter_to_proto, merge_to_proto, rule_to_proto, work_ahead_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sampling_pb2 import SamplingOptions

SAMPLING = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "min_tokens",
    "stop_token_ids",
    "allowed_token_ids",
    "banned_token_ids",
)
FIELDS = (
    *("n", "best_of", "max_tokens", "ignore_eos", "prompt_logprobs"),
    *("num_speculative_tokens", "num_tree_tokens", "lenience"),
)
UNSUPPORTED = ("bad_words", "include_stop_str_in_output", "truncate_prompt_tokens")
"""Parameters of vLLM's that would change the text: they are refused, unless they ask for what is done anyway."""

KWARGS = "chat_template_kwargs"

MAX_COPIED_BYTES = 32 * 1024 * 1024
"""Of the options of a request, of which every prompt has a copy."""


def completion_requests(
    parameters: CompletionParameters, *, has_encoder: bool = False
) -> list[pb.GenerateTokensRequest]:
    """A message for each prompt, which is what the encoder of the target reads, if it has one. Raises
    InvalidFieldError."""
    refuse_given(parameters, ("suffix", *UNSUPPORTED))
    options, count = _request(parameters), len(parameters.prompt)
    if count > 1 and (size := count * options.ByteSize()) > MAX_COPIED_BYTES:
        problem = f"has {count} prompts, whose options have {size} bytes together; at most {MAX_COPIED_BYTES} are taken"
        raise InvalidFieldError("prompt", problem, limit=MAX_COPIED_BYTES)
    return [_completion_request(parameters, options, prompt, has_encoder) for prompt in parameters.prompt]


def _completion_request(
    parameters: CompletionParameters, options: pb.GenerateTokensRequest, prompt: Prompt, has_encoder: bool
) -> pb.GenerateTokensRequest:
    request = pb.GenerateTokensRequest()
    request.CopyFrom(options)
    if isinstance(prompt, str):
        setattr(request, "encoder_text" if has_encoder else "text", prompt)
    else:
        token_ids = request.encoder_token_ids if has_encoder else request.token_ids
        token_ids.SetInParent()
        token_ids.ids.extend(prompt)
    request.echo = bool(parameters.echo)
    if parameters.logprobs is not None:
        request.logprobs = parameters.logprobs
        if request.echo and not request.HasField("prompt_logprobs"):
            request.prompt_logprobs = parameters.logprobs
    return request


def chat_request(parameters: ChatParameters, parts: AnswerParts) -> pb.GenerateTokensRequest:
    """The message; `parts` are those of the answers to it. Raises InvalidFieldError."""
    refuse_given(parameters, ("echo", *UNSUPPORTED))
    request = _request(parameters)
    request.chat.CopyFrom(conversation(parameters.messages, parameters))
    add_tools(request, parameters, parts)
    if parameters.max_completion_tokens is not None:
        request.max_tokens = parameters.max_completion_tokens
    if parameters.logprobs:
        request.logprobs = parameters.top_logprobs or 0
    elif parameters.top_logprobs:
        raise InvalidFieldError("top_logprobs", "requires logprobs to be true")
    return request


def conversation(messages: Sequence[ChatMessage], layout: LayoutParameters) -> pb.Chat:
    """The conversation, without tools. Raises InvalidFieldError."""
    chat = pb.Chat(
        continue_final_message=bool(layout.continue_final_message),
        add_generation_prompt=layout.add_generation_prompt,
        chat_template_kwargs=_kwargs_text(layout.chat_template_kwargs),
    )
    for message in messages:
        chat.messages.add(
            role=message.role,
            content=message.content,
            tool_calls=[tool_call(call) for call in message.tool_calls or ()],
            tool_call_id=message.tool_call_id,
            reasoning_content=message.reasoning_content or message.reasoning,
        )
    return chat


def _kwargs_text(variables: dict[str, Any] | None) -> str:
    return schema_text(KWARGS, variables) if variables else ""


def tool_call(call: ToolCall) -> pb.ToolCall:
    values = {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
    return pb.ToolCall(**{name: check_text(f"tool_calls.{name}", text) for name, text in values.items()})


def add_tools(request: pb.GenerateTokensRequest, parameters: ChatParameters, parts: AnswerParts) -> None:
    """Adds the tools, and the grammar in which they are called. Raises InvalidFieldError."""
    if parts.calling is None:
        return
    if request.HasField("structured_output"):
        raise InvalidFieldError("tools", "cannot be combined with a structured output, unless tool_choice is none")
    request.structured_output.CopyFrom(calling_grammar(parameters, parts.calling, parts.mark_ids, parts.tag_ids))
    request.chat.tools.extend(described(parameters.tools))


def refuse_given(parameters: GenerationParameters, names: Iterable[str]) -> None:
    """Refuses parameters that are not supported, where they have another value than vLLM's defaults. Raises
    InvalidFieldError."""
    for name in names:
        if is_given(getattr(parameters, name)):
            raise InvalidFieldError(name, "is not supported")


def _request(parameters: GenerationParameters) -> pb.GenerateTokensRequest:
    """Everything but the prompt and what depends on the kind of request."""
    request = pb.GenerateTokensRequest(
        sampling=_sampling(parameters),
        stop_strings=parameters.stop,
        drafter=drafter_to_proto(parameters.drafter),
        work_ahead=work_ahead_to_proto(parameters.work_ahead),
        drafts=parameters.drafts,
        merge=merge_to_proto(parameters.merge),
        include_rounds=bool(parameters.include_rounds),
        include_rejected=bool(parameters.include_rounds),
        structured_output=structured_output_of(parameters),
        **_given(parameters, FIELDS),
    )
    set_beams(request, parameters)
    if parameters.rule is not None:
        request.rule = rule_to_proto(parameters.rule)
    return request


def _sampling(parameters: GenerationParameters) -> SamplingOptions:
    sampling = SamplingOptions(**_given(parameters, SAMPLING))
    if parameters.seed is not None:
        sampling.seed = parameters.seed % 2**64
    if parameters.top_k is not None:
        sampling.top_k = max(parameters.top_k, 0)  # vLLM's -1 means all tokens, as 0 does
    return sampling


def _given(parameters: GenerationParameters, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(parameters, name)) is not None}
