"""What is said of a field, with the name that the field has on the command line."""

import re
from collections.abc import Mapping
from typing import Any

from command.flags.option import options
from command.generation.request_options import FLAGS
from command.generation.structures import STRUCTURES
from specpair.security.settings import ChannelSecurity

PROMPTS = {"prompt": "prompt", "text": "prompt", "chat": "--chat", "encoder_text": "--encoder-input"}
"""Fields of a request that no option of `RequestOptions` sets."""
ACCESS = {name: "--" + name.replace("_", "-") for name in options(ChannelSecurity)}
"""Fields of how a service is reached. Their flags are none of the running command's parameters: see `access.py`."""
STRUCTURE = "structured_output"
FIELD = re.compile(
    r"(?:(?:sampling|structured_output)\.)?(?P<name>\w+|--[\w-]+)(?P<index>\[\d+\])?"
    r"(?: (?P<measure>length|bytes|count))?"
)
MEASURES = {None: "", "length": "its length ", "bytes": "its length in bytes ", "count": "its count "}
SPELLED = re.compile(r"(?<![\w'\"./-])[a-z]+(?:_[a-z]+)+(?![\w'\"])")
"""A name with underscores that is not quoted, as what a person wrote would be: no word of English."""
MARKED = re.compile(r"`([a-z_]+)`")
"""The name of a field that could be a word of English."""


def in_flags(message: str, values: Mapping[str, Any] | None = None) -> str:
    """The message of an error, whose field and whose other names are those of flags, where flags set them.

    `values` are those of the running command's parameters. A part of a field, such as `chat.messages[0]`, stays.
    """
    values = values or {}
    names = {name: "--" + name.replace("_", "-") for name in values} | ACCESS | FLAGS | PROMPTS
    names[STRUCTURE] = _structure(values)
    field, colon, problem = message.partition(": ")
    if colon and (found := FIELD.fullmatch(field)) and (field.startswith("--") or found["name"] in names):
        name, index = found["name"], found["index"] or ""
        flag = names.get(name, name) + ("" if name in FLAGS else index)  # those have a flag for each value of a list
        message = f"{flag}: {MEASURES[found['measure']]}{problem}"
    message = MARKED.sub(lambda marked: names.get(marked[1], marked[0]), message)
    return SPELLED.sub(lambda spelled: names.get(spelled[0], spelled[0]), message)


def _structure(values: Mapping[str, Any]) -> str:
    """The flag that gave the structured output; all that might have, if none did."""
    given = [FLAGS[name] for name in STRUCTURES if values.get(name) not in (None, [])]
    *others, last = given or [FLAGS[name] for name in STRUCTURES]
    return f"{', '.join(others)} or {last}" if others else last
