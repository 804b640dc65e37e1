"""The items of a response's input are the messages that chat would have been sent."""

from typing import Any

import pytest

from coordinator.http.item_messages import item_messages
from coordinator.http.parameters import ChatMessage
from coordinator.http.response_parameters import ResponseParameters
from specpair.errors import InvalidFieldError


def messages_of(items: Any) -> list[dict[str, Any]]:
    """The messages of these items, with what they have."""
    messages = item_messages(ResponseParameters.model_validate({"input": items}).input)
    return [message.model_dump(exclude_defaults=True) for message in messages]


def said(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [ChatMessage(**message).model_dump(exclude_defaults=True) for message in messages]


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def answered(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def called(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "clock", "arguments": "{}"}


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": "clock", "arguments": "{}"}}


USER = {"role": "user", "content": "Hi"}


def test_a_text_is_what_the_user_says() -> None:
    assert messages_of("Hi") == said(USER)


def test_contents_may_come_in_parts() -> None:
    parts = [{"type": "input_text", "text": "H"}, {"type": "output_text", "text": "i"}]
    assert messages_of([{"role": "user", "content": parts}, {"role": "developer", "content": "x"}]) == said(
        USER, {"role": "developer", "content": "x"}
    )


def test_what_the_assistant_thought_said_and_called_is_one_message() -> None:
    items = [USER, thought("a"), answered("b"), called("1"), called("2")]
    together = {"role": "assistant", "reasoning_content": "a", "content": "b", "tool_calls": [call("1"), call("2")]}
    assert messages_of(items) == said(USER, together)


def test_what_calls_gave_comes_after_them() -> None:
    items = [called("1"), called("2"), {"type": "function_call_output", "call_id": "2", "output": "noon"}, called("3")]
    assert messages_of(items) == said(
        {"role": "assistant", "tool_calls": [call("1"), call("2")]},
        {"role": "tool", "tool_call_id": "2", "content": "noon"},
        {"role": "assistant", "tool_calls": [call("3")]},
    )


@pytest.mark.parametrize("items", [[answered("a"), answered("b")], [called("1"), answered("b")]])
def test_a_text_after_a_text_or_a_call_is_a_message_of_its_own(items: list[dict[str, Any]]) -> None:
    assert len(messages_of(items)) == 2


def test_reasoning_begins_a_message() -> None:
    items = [thought("a"), thought("b"), answered("c"), thought("d"), called("1")]
    assert messages_of(items) == said(
        {"role": "assistant", "reasoning_content": "a"},
        {"role": "assistant", "reasoning_content": "b", "content": "c"},
        {"role": "assistant", "reasoning_content": "d", "tool_calls": [call("1")]},
    )


def test_summaries_stand_for_reasoning_that_has_no_text() -> None:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    assert messages_of([{"type": "reasoning", "summary": summary}]) == said(
        {"role": "assistant", "reasoning_content": "a\nb"}
    )
    encrypted = {"type": "reasoning", "summary": [], "encrypted_content": "?"}
    assert messages_of([USER, encrypted, answered("a")]) == said(USER, {"role": "assistant", "content": "a"})


def test_calls_in_a_row_are_bounded_as_in_chat() -> None:
    assert len(messages_of([called("1")] * 128)[0]["tool_calls"]) == 128
    with pytest.raises(InvalidFieldError, match=r"input\[129\].*128"):
        messages_of([USER, *[called("1")] * 129])


def test_arguments_are_as_deep_as_in_chat() -> None:
    deep = {**called("1"), "arguments": "[" * 64 + "]" * 64}
    assert messages_of([deep])
    with pytest.raises(InvalidFieldError, match=r"input\[1\]\.arguments.*64"):
        messages_of([USER, {**deep, "arguments": "[" * 65 + "]" * 65}])
    for broken in ("{", "[" * 100_000):
        assert messages_of([{**deep, "arguments": broken}]), "the template gets it as a text"
