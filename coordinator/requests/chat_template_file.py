"""A chat template in a file, which replaces the model's own."""

from coordinator.requests.chat_template import ChatTemplate
from specpair.errors import InvalidFieldError, SpecpairError

FLAG = "--chat-template"
MAX_TEMPLATE_BYTES = 256 * 1024
"""Largest file: some twenty times the longest template that is in use."""


def read_chat_template(path: str) -> str:
    """The Jinja source in the file. Raises InvalidFieldError, which names the flag and the file, if it is missing,
    empty, too large, not UTF-8, or not a template."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_TEMPLATE_BYTES + 1)
    except (OSError, ValueError) as error:  # the latter for a path that can be none
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidFieldError(FLAG, f"{path} cannot be read: {reason}") from None
    if len(content) > MAX_TEMPLATE_BYTES:
        problem = f"{path} has more than {MAX_TEMPLATE_BYTES} bytes"
        raise InvalidFieldError(FLAG, problem, limit=MAX_TEMPLATE_BYTES)
    try:
        source = content.decode("utf-8-sig")  # a mark of the byte order is none of the prompt's
    except UnicodeDecodeError:
        raise InvalidFieldError(FLAG, f"{path} is not UTF-8 text") from None
    if not source.strip():
        raise InvalidFieldError(FLAG, f"{path} is empty")
    try:
        ChatTemplate(source, {})
    except SpecpairError as error:
        raise InvalidFieldError(FLAG, f"{path}: {error.message}") from None
    return source
