"""Structured outputs from options of the command line."""

import os
from pathlib import Path
from typing import Any

from command.generation.checked_text import checked_text
from specpair.errors import InvalidFieldError
from specpair.v1 import structured_output_pb2 as pb

STRUCTURES = ("json_schema", "regex", "grammar", "choices")
FROM_FILES = ("json_schema", "grammar")


def structured_output(name: str, value: Any) -> pb.StructuredOutput:
    """The message for one option. Raises InvalidFieldError for a file that cannot be read."""
    flag = "--" + name.replace("_", "-")
    if name == "choices":
        return pb.StructuredOutput(choices=pb.Choices(texts=[checked_text("--choice", os.fsencode(x)) for x in value]))
    text = read_file(flag, value) if name in FROM_FILES else checked_text(flag, os.fsencode(value))
    message = pb.StructuredOutput()
    setattr(message, name, text)
    return message


def read_file(flag: str, value: str) -> str:
    """The text of the file of that name; without such a file, the value itself."""
    try:
        is_file = Path(value).is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        text = checked_text(flag, os.fsencode(value))
        if not text.lstrip().startswith("{") and ":" not in text and text.strip() not in ("true", "false"):
            raise InvalidFieldError(flag, f"there is no file {text[:200]!r}, and it is none itself")
        return text
    try:
        return checked_text(flag, Path(value).read_bytes())
    except OSError as error:
        raise InvalidFieldError(flag, f"the file cannot be read: {error.strerror}") from None
