"""The chat template of a tokenizer, which may have several with names."""

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

DEFAULT = "default"
WITH_TOOLS = "tool_use"


def chat_template_of(tokenizer: Any) -> str:
    """Jinja source; empty if there is none. Of several templates those that transformers takes by itself: `tool_use`
    for conversations with tools, `default` for others."""
    template = tokenizer.chat_template
    if isinstance(template, str):
        return template
    named: Mapping[str, str] = template or {}
    if DEFAULT not in named:
        if named:
            log.warning("no chat template is served: there are %s, and none is the default", ", ".join(sorted(named)))
        return ""
    return either(named[WITH_TOOLS], named[DEFAULT]) if WITH_TOOLS in named else named[DEFAULT]


def either(with_tools: str, without: str) -> str:
    """One template of two. Each begins on a line of its own, whose line break trim_blocks takes away. The signs + keep
    the white space at its end, which lstrip_blocks would take away. The line break that ends it is not of its text."""
    first, second = with_tools.removesuffix("\n"), without.removesuffix("\n")
    return f"{{% if tools %}}\n{first}{{%+ else %}}\n{second}{{%+ endif %}}"
