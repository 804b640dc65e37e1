"""One message for each prompt, with the same options, and no more than fits."""

from typing import Any

import pytest

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.messages import MAX_COPIED_BYTES, chat_request, completion_requests
from coordinator.http.parameters import ChatParameters, CompletionParameters
from specpair.errors import InvalidFieldError
from specpair.v1 import coordinator_service_pb2 as pb

LONG = "x" * (MAX_COPIED_BYTES // 4)


def parameters(prompt: Any, **others: Any) -> CompletionParameters:
    return CompletionParameters(prompt=prompt, **others)


def test_prompts_have_messages_of_their_own_with_the_same_options() -> None:
    listed = {"allowed_token_ids": [1, 2], "banned_token_ids": [2], "stop": ["x"]}
    text, token_ids = completion_requests(parameters(["a", [5, 6]], **listed))
    assert (text.text, list(token_ids.token_ids.ids)) == ("a", [5, 6])
    assert text.WhichOneof("prompt") != token_ids.WhichOneof("prompt")
    for request in (text, token_ids):
        assert (list(request.sampling.allowed_token_ids), list(request.sampling.banned_token_ids)) == ([1, 2], [2])
        assert list(request.stop_strings) == ["x"]


def test_options_are_not_copied_for_more_prompts_than_fit() -> None:
    assert len(completion_requests(parameters(["a"] * 3, guided_grammar=LONG))) == 3
    with pytest.raises(InvalidFieldError, match="has 4 prompts, whose options have"):
        completion_requests(parameters(["a"] * 4, guided_grammar=LONG))


def test_the_options_of_one_prompt_are_left_to_the_checks_of_all_front_ends() -> None:
    assert len(completion_requests(parameters("a", guided_grammar=LONG * 5))) == 1


def test_a_list_with_many_errors_is_refused_at_the_first() -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        parameters("a", drafts=[1] * 5)


def chat_of(**layout: Any) -> pb.Chat:
    return chat_request(ChatParameters(messages=[{"role": "user", "content": "a"}], **layout), AnswerParts()).chat  # type: ignore[list-item]


def test_the_layout_of_a_chat_is_passed_on_as_it_is_given() -> None:
    plain = chat_of()
    assert (plain.continue_final_message, plain.HasField("add_generation_prompt")) == (False, False)
    assert plain.chat_template_kwargs == chat_of(chat_template_kwargs={}).chat_template_kwargs == ""
    chat = chat_of(continue_final_message=True, add_generation_prompt=False, chat_template_kwargs={"é": [1, None]})
    assert (chat.continue_final_message, chat.add_generation_prompt) == (True, False)
    assert chat.HasField("add_generation_prompt")
    assert chat.chat_template_kwargs == '{"é": [1, null]}'


def test_variables_that_are_no_text_or_nested_too_deeply_are_named() -> None:
    with pytest.raises(InvalidFieldError, match="chat_template_kwargs: holds an unpaired surrogate"):
        chat_of(chat_template_kwargs={"x": "\ud800"})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidFieldError, match="chat_template_kwargs: is nested too deeply"):
        chat_request(ChatParameters.model_construct(messages=[], chat_template_kwargs={"x": deep}), AnswerParts())
