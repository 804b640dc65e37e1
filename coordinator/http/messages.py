"""Turns HTTP parameters into the message that every front end passes to Serving."""

from typing import Any

from coordinator.http.beams import set_beams
from coordinator.http.parameters import ChatParameters, CompletionParameters, GenerationParameters, Prompt
from specpair.errors import InvalidFieldError
from specpair.rpc.messages import drafter_to_proto, rule_to_proto, work_ahead_to_proto
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
)
FIELDS = (
    *("n", "best_of", "max_tokens", "ignore_eos", "prompt_logprobs"),
    *("num_speculative_tokens", "num_tree_tokens", "lenience"),
)


def completion_requests(parameters: CompletionParameters) -> list[pb.GenerateTokensRequest]:
    """A message for each prompt. Raises InvalidFieldError."""
    if parameters.suffix:
        raise InvalidFieldError("suffix", "is not supported")
    return [_completion_request(parameters, prompt) for prompt in parameters.prompt]


def _completion_request(parameters: CompletionParameters, prompt: Prompt) -> pb.GenerateTokensRequest:
    request = _request(parameters)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.SetInParent()
        request.token_ids.ids.extend(prompt)
    request.echo = bool(parameters.echo)
    if parameters.logprobs is not None:
        request.logprobs = parameters.logprobs
        if request.echo and not request.HasField("prompt_logprobs"):
            request.prompt_logprobs = parameters.logprobs
    return request


def chat_request(parameters: ChatParameters) -> pb.GenerateTokensRequest:
    """The message. Raises InvalidFieldError."""
    request = _request(parameters)
    request.chat.SetInParent()
    for message in parameters.messages:
        # `developer` is OpenAI's newer name.
        role = "system" if message.role == "developer" else message.role
        request.chat.messages.add(role=role, content=message.content)
    if parameters.max_completion_tokens is not None:
        request.max_tokens = parameters.max_completion_tokens
    if parameters.logprobs:
        request.logprobs = parameters.top_logprobs or 0
    elif parameters.top_logprobs:
        raise InvalidFieldError("top_logprobs", "requires logprobs to be true")
    return request


def _request(parameters: GenerationParameters) -> pb.GenerateTokensRequest:
    """Everything but the prompt and what depends on the kind of request."""
    request = pb.GenerateTokensRequest(
        sampling=_sampling(parameters),
        stop_strings=parameters.stop,
        drafter=drafter_to_proto(parameters.drafter),
        work_ahead=work_ahead_to_proto(parameters.work_ahead),
        include_rounds=bool(parameters.include_rounds),
        include_rejected=bool(parameters.include_rounds),
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
