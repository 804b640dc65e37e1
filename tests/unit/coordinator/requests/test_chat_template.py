"""How a conversation is laid out: continued messages, variables of the client, and templates that strip or refuse."""

from typing import Any

import pytest

from coordinator.requests.chat_template import ChatOptions, ChatTemplate
from specpair.errors import InvalidFieldError, SpecpairError

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
KEEPING = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)
STRIPPING = KEEPING.replace("m.content", "m.content | trim")
SPACED = KEEPING.replace("{{ m.content }}", "{{ m.content | trim }} ")
THINKING = "{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}"
CONTINUED = ChatOptions(continues_last=True)


def laid_out(template: str, *contents: str, options: ChatOptions = CONTINUED) -> str:
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return ChatTemplate(template, SPECIAL).text(messages, (), options)


@pytest.mark.parametrize(
    ("template", "content", "end"),
    [
        (KEEPING, "Once upon", "Once upon"),
        (KEEPING, " Once \n", " Once \n"),
        (KEEPING, "", ""),
        (STRIPPING, "Once upon", "Once upon"),
        (STRIPPING, " Once \n", "Once"),
        (STRIPPING, "", ""),
        (STRIPPING, "\n", ""),
        (SPACED, " Once \n", "Once"),
    ],
)
def test_a_continued_message_ends_the_text(template: str, content: str, end: str) -> None:
    before = laid_out(template, "a", options=ChatOptions(adds_prompt=False))
    assert laid_out(template, "a", content) == before + "[assistant]" + end


def rendered_by_transformers(template: str, messages: list[dict[str, str]], **options: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    every: dict[str, Any] = {**options, **SPECIAL}
    texts: Any = render_jinja_template([messages], chat_template=template, **every)
    return texts[0][0]


@pytest.mark.parametrize("template", [KEEPING, STRIPPING])
@pytest.mark.parametrize("content", ["Once upon", " Once \n", "a</s>b", "a  b\t"])
def test_it_is_cut_as_transformers_cuts_it(template: str, content: str) -> None:
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": content}]
    assert ChatTemplate(template, SPECIAL).text(messages, (), CONTINUED) == rendered_by_transformers(
        template, messages, continue_final_message=True
    )


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ messages[1].content | replace('x', 'y') }}"])
def test_a_message_that_the_template_leaves_out_or_changes_is_not_continued(template: str) -> None:
    with pytest.raises(InvalidFieldError, match=r"chat.continue_final_message: is not possible"):
        laid_out(template, "a", "x")


def test_what_others_said_is_no_sign_of_the_last_message() -> None:
    """Here the template cuts it short, and the same text is in an earlier message."""
    with pytest.raises(InvalidFieldError, match=r"chat.continue_final_message: is not possible"):
        laid_out(
            "{{ messages[0].content }}|{{ messages[1].content | replace('long ', '') }}", "a long way", "a long way"
        )


@pytest.mark.parametrize(
    "filters",
    ["tojson", "tojson(indent=4)", "tojson(ensure_ascii=True)", "tojson(separators=(',', ':'), sort_keys=True)"],
)
def test_json_is_that_of_transformers(filters: str) -> None:
    template = f"{{{{ {{'d': \"a<b & it's \" ~ messages[0].content, 'b': [1, none]}} | {filters} }}}}"
    messages = [{"role": "user", "content": "é"}]
    assert laid_out(template, "é", options=ChatOptions()) == rendered_by_transformers(template, messages)


def test_what_is_marked_as_generated_is_laid_out_as_it_is() -> None:
    template = "{% for m in messages %}{% generation %}{% set x = m.content %}[{{ x }}]{% endgeneration %}{% endfor %}."
    assert laid_out(template, "a", "b", options=ChatOptions()) == "[a][b]."


def test_indented_json_has_a_limit() -> None:
    deep: list[Any] = []
    for _ in range(800):
        deep = [deep]
    with pytest.raises(InvalidFieldError, match="1048576 characters as indented JSON"):
        laid_out("{{ x | tojson(indent=4) }}", "a", options=ChatOptions(variables={"x": deep}))


def test_a_text_without_what_begins_the_next_message() -> None:
    assert laid_out(KEEPING, "a", options=ChatOptions()) == "[user]a</s>>"
    assert laid_out(KEEPING, "a", options=ChatOptions(adds_prompt=False)) == "[user]a</s>"


@pytest.mark.parametrize(("value", "text"), [(False, "a<no>"), (True, "a"), (None, "a")])
def test_the_template_sees_the_clients_variables(value: object, text: str) -> None:
    assert laid_out(THINKING, "a", options=ChatOptions(variables={"enable_thinking": value})) == text


@pytest.mark.parametrize(
    "name",
    [
        *("messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token"),
        *("raise_exception", "strftime_now", "range", "namespace", "chat_template"),
    ],
)
def test_what_has_a_meaning_of_its_own_is_not_the_clients(name: str) -> None:
    with pytest.raises(InvalidFieldError, match=rf"chat.chat_template_kwargs: sets {name},") as caught:
        laid_out(KEEPING, "a", options=ChatOptions(variables={name: 1}))
    assert caught.value.metadata["field"] == "chat.chat_template_kwargs"


@pytest.mark.parametrize(
    ("template", "value", "words"),
    [
        ("{{ 'a' + x }}", 1, "fails with TypeError"),
        ("{% for i in range(x) %}{% endfor %}", 10**12, "fails with OverflowError"),
        ("{{ x }}", "\ud800", "unpaired surrogate"),
        ("{{ x.__class__.__mro__[1].__subclasses__() }}", {}, "unsafe"),
        ("{{ x.append(1) }}", [], "unsafe"),
        ("{{ raise_exception('no') }}", 1, "no"),
    ],
)
def test_no_variable_breaks_out_or_fails_the_service(template: str, value: object, words: str) -> None:
    with pytest.raises(InvalidFieldError, match=rf"^chat: .*{words}"):
        laid_out(template, "a", options=ChatOptions(variables={"x": value, "self": value}))


def test_a_text_of_the_client_is_not_a_way_out() -> None:
    variables = {"x": "{0.__class__.__mro__}{{ bos_token }}"}
    with pytest.raises(InvalidFieldError, match="unsafe"):
        laid_out("{{ x.format(messages) }}", "a", options=ChatOptions(variables=variables))
    assert laid_out("{{ x }}", "a", options=ChatOptions(variables=variables)) == variables["x"]


def test_a_template_that_cannot_be_read_is_named() -> None:
    with pytest.raises(SpecpairError, match="chat template cannot be read"):
        ChatTemplate("{% if %}", {})
