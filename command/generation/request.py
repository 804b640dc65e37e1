"""A request made from options of the command line.

Only values that the message's types cannot hold are refused here; the server checks all other limits.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from command.generation.checked_text import checked_text
from command.generation.request_options import FLAGS
from command.generation.structures import STRUCTURES, structured_output
from specpair.errors import InvalidFieldError
from specpair.options import (
    MAX_LOGPROBS,
    MAX_SEED,
    MAX_UINT32,
    TOKEN_LIST_LIMITS,
    Drafter,
    Encoding,
    Merge,
    Rule,
    WorkAhead,
)
from specpair.rpc.beams import early_stopping_to_proto
from specpair.rpc.messages import (
    drafter_to_proto,
    encoding_to_proto,
    merge_to_proto,
    rule_to_proto,
    work_ahead_to_proto,
)
from specpair.speculation.beams.beam_options import EarlyStopping
from specpair.v1 import coordinator_service_pb2 as pb

STDIN = "-"

TO_PROTO: dict[type, Callable[[Any], int]] = {
    Rule: rule_to_proto,
    Drafter: drafter_to_proto,
    Encoding: encoding_to_proto,
    Merge: merge_to_proto,
    WorkAhead: work_ahead_to_proto,
    EarlyStopping: early_stopping_to_proto,
}
"""Choices whose names here differ from those of the message."""

SERVERS = "the server's limit"
SHOWN = f"{SERVERS}, which `specpair info` shows"
VOCABULARY = "the last token of the vocabulary"
LIMITS: dict[str, tuple[int, int | str]] = {
    "seed": (0, MAX_SEED),
    "max_tokens": (1, MAX_UINT32),
    "n": (1, SERVERS),
    "best_of": (1, SERVERS),
    "num_beams": (1, SERVERS),
    "logprobs": (0, MAX_LOGPROBS),
    "prompt_logprobs": (0, MAX_LOGPROBS),
    "num_speculative_tokens": (0, SHOWN),
    "num_tree_tokens": (0, SHOWN),
    **dict.fromkeys(TOKEN_LIST_LIMITS, (0, VOCABULARY)),
    "logit_bias": (0, VOCABULARY),
}
"""The least and the most that a server takes, for messages; of other whole numbers all that a message holds."""

Value = int | float | str | Sequence[int] | Sequence[str] | None


def completion_request(
    prompt: str | None, *, encoder_input: str | None = None, is_chat: bool = False, **values: Value
) -> pb.GenerateTokensRequest:
    """The message for a prompt, or for what an encoder reads; `values` are fields of the request or of its sampling;
    None is not set.

    Raises InvalidFieldError, naming the flag.
    """
    request = pb.GenerateTokensRequest(sampling={})
    if (prompt is None) == (encoder_input is None):
        missing = "is missing: give the text to continue, or - to read it from standard input"
        raise InvalidFieldError("prompt", missing if prompt is None else "and --encoder-input are both given")
    if encoder_input is not None and is_chat:
        raise InvalidFieldError("--chat", "is for a prompt; --encoder-input is read as it is")
    if encoder_input is not None:
        request.encoder_text = given_text("--encoder-input", encoder_input)
    elif prompt is not None and is_chat:
        request.chat.messages.add(role="user", content=given_text("prompt", prompt))
    elif prompt is not None:
        request.text = given_text("prompt", prompt)
    for name, value in values.items():
        if value is not None and name in STRUCTURES:
            if request.HasField("structured_output"):
                raise InvalidFieldError(FLAGS[name], "is a second structure; the output has one at most")
            request.structured_output.CopyFrom(structured_output(name, value))
        elif value is not None:
            _set(request if name in request.DESCRIPTOR.fields_by_name else request.sampling, name, value)
    return request


def given_text(field: str, text: str) -> str:
    """The text of an argument, or of standard input."""
    return checked_text(field, sys.stdin.buffer.read() if text == STDIN else os.fsencode(text))


def _set(message: Any, name: str, value: Any) -> None:
    if type(value) in TO_PROTO:
        setattr(message, name, TO_PROTO[type(value)](value))
    elif name == "logit_bias":
        message.logit_bias.update(_bias(name, entry) for entry in value)
    elif isinstance(value, list | tuple):
        getattr(message, name).extend(_checked(name, entry) for entry in value)
    else:
        setattr(message, name, _checked(name, value))


def _checked(name: str, value: Any) -> Any:
    """The value of a field. Raises InvalidFieldError, with the server's limits, for what the message cannot hold."""
    flag = FLAGS.get(name, name)
    if isinstance(value, str):
        return checked_text(flag, os.fsencode(value))
    if isinstance(value, int) and not 0 <= value <= (MAX_SEED if name == "seed" else MAX_UINT32):
        least, most = LIMITS.get(name, (0, MAX_UINT32))
        raise InvalidFieldError(flag, f"is {value}; it must be between {least} and {most}")
    return value


def _bias(name: str, entry: str) -> tuple[int, float]:
    token_id, _, bias = entry.partition("=")
    try:
        return _checked(name, int(token_id)), float(bias)
    except ValueError:
        raise InvalidFieldError(FLAGS[name], f"is {entry!r}; it must be ID=BIAS, as in 42=-1.5") from None
