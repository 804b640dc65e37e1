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
        source = content.decode()
    except OSError as error:
        raise InvalidFieldError(FLAG, f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidFieldError(FLAG, f"{path} is not UTF-8 text") from None
    if len(content) > MAX_TEMPLATE_BYTES:
        problem = f"{path} has more than {MAX_TEMPLATE_BYTES} bytes"
        raise InvalidFieldError(FLAG, problem, limit=MAX_TEMPLATE_BYTES)
    if not source.strip():
        raise InvalidFieldError(FLAG, f"{path} is empty")
    try:
        ChatTemplate(source, {})
    except SpecpairError as error:
        raise InvalidFieldError(FLAG, f"{path}: {error.message}") from None
    return source
