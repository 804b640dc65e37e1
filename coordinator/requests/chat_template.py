"""A model's chat template: turns a conversation into text, in a sandbox."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specpair.errors import InvalidFieldError, SpecpairError

OWN_NAMES = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
"""What is set by fields of its own, and what transformers takes for the same."""
MAX_INDENTED = 1 << 20
"""Characters of a value that a template lays out as indented JSON."""
TAIL = " \t "
"""White space behind the mark at a message's end, by which a template that strips messages is known."""


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """How a conversation is laid out."""

    continues_last: bool = False
    """The text ends with the content of the last message."""
    adds_prompt: bool = True
    """The text ends with what begins the assistant's next message."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """More variables for the template."""


class GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for those who train models. Its content is laid out as it
    is."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. Raises SpecpairError if it cannot be read."""

    def __init__(self, source: str, special_texts: Mapping[str, str]):
        self._special_texts = special_texts
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
        )
        # What templates of Hugging Face models rely on.
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        environment.filters["tojson"] = _to_json
        self._reserved = {*OWN_NAMES, *special_texts, *environment.globals}
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise SpecpairError(f"the chat template cannot be read: line {error.lineno}: {error.message}") from error
        except Exception as error:  # of Python, for what jinja makes of it: nested too deeply, for example
            raise SpecpairError(f"the chat template cannot be read: {type(error).__name__}: {error}") from error

    def text(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any], options: ChatOptions) -> str:
        """The conversation as text. Raises InvalidFieldError."""
        for name in options.variables:
            if name in self._reserved:
                problem = f"sets {name}, which is not the client's to set here"
                raise InvalidFieldError("chat.chat_template_kwargs", problem)
        if not options.continues_last:
            return self._render(messages, tools, options)
        *others, last = messages
        mark = f"END_OF_MESSAGE_{secrets.token_hex(8)}"
        marked = self._render([*others, {**last, "content": last["content"] + mark + TAIL}], tools, options)
        return _cut(marked, last["content"], mark)

    def _render(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any], options: ChatOptions) -> str:
        variables = {
            **options.variables,
            **self._special_texts,
            "messages": messages,
            "tools": list(tools) or None,
            "add_generation_prompt": options.adds_prompt and not options.continues_last,
        }
        try:
            text = self._template.render(variables)
            text.encode()
        except TemplateError as error:
            raise InvalidFieldError("chat", f"does not fit the model's chat template: {error}") from error
        except UnicodeEncodeError as error:
            raise InvalidFieldError("chat", "holds an unpaired surrogate, which is not a character") from error
        except Exception as error:  # whatever a template does with values that it does not expect
            problem = f"does not fit the model's chat template, which fails with {type(error).__name__}"
            raise InvalidFieldError("chat", problem) from error
        return text


def _cut(marked: str, content: str, mark: str) -> str:
    """The text up to the end of the last message, as transformers' continue_final_message cuts it: without white space
    at the message's end if the template strips it. Raises InvalidFieldError if the message is not in the text."""
    before, found, after = marked.rpartition(mark)
    stripped = content.strip()
    if not found or not before.rstrip().endswith(stripped):
        problem = "is not possible: the model's chat template leaves out or changes the last message"
        raise InvalidFieldError("chat.continue_final_message", problem)
    space = content[len(content.rstrip()) :]
    return before if after.startswith(TAIL) or not stripped else before.removesuffix(space)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter as transformers has it: unlike jinja's it escapes nothing for HTML. Raises TemplateError for more than
    MAX_INDENTED characters, of which most may be white space."""
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, check_circular=False
    )
    if indent is None:
        return encoder.encode(value)
    pieces, length = list[str](), 0
    for piece in encoder.iterencode(value):
        pieces.append(piece)
        length += len(piece)
        if length > MAX_INDENTED:
            raise TemplateError(f"a value has more than {MAX_INDENTED} characters as indented JSON")
    return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> Any:
    return datetime.now().strftime(layout)
