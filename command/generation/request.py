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
from specpair.options import MAX_SEED, MAX_UINT32, Drafter, Encoding, Merge, Rule, WorkAhead, check_range
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
        raise InvalidFieldError("prompt", "is missing" if prompt is None else "and --encoder-input are both given")
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
    flag = FLAGS.get(name, name)
    if type(value) in TO_PROTO:
        setattr(message, name, TO_PROTO[type(value)](value))
    elif name == "logit_bias":
        message.logit_bias.update(_bias(flag, entry) for entry in value)
    elif isinstance(value, list | tuple):
        getattr(message, name).extend(_checked(flag, entry) for entry in value)
    else:
        limit = MAX_SEED if name == "seed" else MAX_UINT32
        setattr(message, name, _checked(flag, value, limit))


def _checked(flag: str, value: Any, limit: int = MAX_UINT32) -> Any:
    if isinstance(value, str):
        return checked_text(flag, os.fsencode(value))
    if isinstance(value, int):
        check_range(flag, value, 0, limit)
    return value


def _bias(flag: str, entry: str) -> tuple[int, float]:
    token_id, _, bias = entry.partition("=")
    try:
        pair = int(token_id), float(bias)
    except ValueError:
        raise InvalidFieldError(flag, f"is {entry!r}; it must be ID=BIAS, as in 42=-1.5") from None
    check_range(flag, pair[0], 0, MAX_UINT32)
    return pair
