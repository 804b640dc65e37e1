"""The HTTP parameters of message fields that have other names: errors name what was sent."""

from collections.abc import Mapping

from coordinator.http.parameters import ChatParameters, GenerationParameters
from coordinator.http.structures import structure_name

Names = Mapping[str, str]
"""The parameters, by field."""

PARAMETERS: Names = {
    "stop_strings": "stop",
    "structured_output": "structured_outputs",
    **dict.fromkeys(("text", "token_ids", "encoder_text", "encoder_token_ids"), "prompt"),
}
CHAT_PARAMETERS: Names = {
    "stop_strings": "stop",
    "structured_output": "structured_outputs",
    "prompt": "messages",
    "chat": "messages",
}
RESPONSE_PARAMETERS: Names = {
    "stop_strings": "stop",
    "structured_output": "structured_outputs",
    "prompt": "input",
    "chat": "input",
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "logprobs": "top_logprobs",
}
BY_PATH = {"/v1/chat/completions": CHAT_PARAMETERS, "/v1/responses": RESPONSE_PARAMETERS}


def names_at(path: str) -> Names:
    """The names at a path, as far as they do not depend on the request."""
    return BY_PATH.get(path, PARAMETERS)


def sent_names(parameters: GenerationParameters) -> Names:
    """By which names this request sent what the fields of a message say."""
    is_chat = isinstance(parameters, ChatParameters)
    names = {**(CHAT_PARAMETERS if is_chat else PARAMETERS), "structured_output": structure_name(parameters)}
    if is_chat:
        if parameters.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        if parameters.top_logprobs:
            names["logprobs"] = "top_logprobs"
    if parameters.use_beam_search and parameters.num_beams is None:
        names["num_beams"] = "n"
    return names


def response_names(as_chat: ChatParameters) -> Names:
    """The same for a response, whose parameters are given as those of chat."""
    sent = sent_names(as_chat)
    structure = sent["structured_output"]
    return {
        **sent,
        **RESPONSE_PARAMETERS,
        "structured_output": RESPONSE_PARAMETERS.get(structure, structure),
        "logprobs": "top_logprobs" if as_chat.top_logprobs else "include",
    }


def parameter_name(field: str, names: Names) -> str:
    """The HTTP parameter of a message field: `sampling.top_k` is top_k."""
    name = field.removeprefix("sampling.").removeprefix("chat.")
    for theirs, ours in names.items():
        if name == theirs or name.startswith((f"{theirs}[", f"{theirs} ", f"{theirs}.")):
            return ours + name[len(theirs) :]
    return name
