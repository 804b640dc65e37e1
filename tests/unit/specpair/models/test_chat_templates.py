"""Of several chat templates those are served that transformers takes by itself."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from coordinator.requests.tokenizer import Tokenizer
from specpair.models.chat_templates import chat_template_of, either
from specpair.models.find_checkpoint import find_checkpoint
from specpair.models.loading import read_tokenizer
from tests.tiny_models import make_model
from tests.tiny_tokenizers import added, byte_level

PLAIN = "\n  {% for message in messages %}\n<{{ message['role'] }}>{{ message['content'] }}\n  {% endfor %}\n\n"
TOOLS = (
    "  {% macro name(tool) %}[{{ tool['function']['name'] }}]{% endmacro %}\n"
    "{% set ns = namespace(count=0) %}{% for tool in tools %}{{ name(tool) }}{% set ns.count = ns.count + 1 %}"
    "{% endfor %}{{ ns.count }}{% set messages = messages[-1:] %}{{ messages[0]['content'] }}\n  "
)
MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def make_tokenizer(folder: Path, templates: Any) -> Path:
    """A model with such a tokenizer; `templates` as tokenizer_config.json has them."""
    make_model(folder)
    document = byte_level([chr(code) for code in range(33, 95)], [], [added(62)])
    (folder / "tokenizer.json").write_text(json.dumps(document))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": templates}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("tools", [[], [TOOL], [TOOL, TOOL]], ids=len)
@pytest.mark.parametrize("templates", [{"default": PLAIN, "rag": "no"}, {"default": PLAIN, "tool_use": TOOLS}], ids=len)
def test_a_text_is_that_of_transformers(templates: dict[str, str], tools: list[Any], tmp_path: Path) -> None:
    named = [{"name": name, "template": template} for name, template in templates.items()]
    folder = make_tokenizer(tmp_path, named)
    files = read_tokenizer(find_checkpoint(str(folder)))
    assert files is not None
    theirs: Any = AutoTokenizer.from_pretrained(folder)
    assert theirs.chat_template == templates
    expected = theirs.apply_chat_template(MESSAGES, tools=tools or None, tokenize=False)
    assert Tokenizer(files).chat_text(MESSAGES, tools) == expected


@pytest.mark.parametrize(
    "first", ["x", "\nx\n", "  x  ", "x\n\n", "  {% if 1 %}x{% endif %}\n  ", "{% if 1 %}\nx\n{% endif %}\n"]
)
@pytest.mark.parametrize("second", ["y", "\n\ny\n", "\ty ", "{#- a -#}\ny"])
def test_each_of_two_keeps_its_white_space(first: str, second: str) -> None:
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    both = environment.from_string(either(first, second))
    assert both.render(tools=[1]) == environment.from_string(first).render()
    assert both.render(tools=None) == environment.from_string(second).render()


def test_without_a_default_there_is_none_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert chat_template_of(SimpleNamespace(chat_template={"rag": "x", "tool_use": "y"})) == ""
    assert "there are rag, tool_use" in caplog.text
    caplog.clear()
    assert chat_template_of(SimpleNamespace(chat_template=None)) == ""
    assert chat_template_of(SimpleNamespace(chat_template="z")) == "z"
    assert not caplog.text
