"""One message for each prompt, with the same options, and no more than fits."""

from typing import Any

import pytest

from coordinator.http.messages import MAX_COPIED_BYTES, completion_requests
from coordinator.http.parameters import CompletionParameters
from specpair.errors import InvalidFieldError

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
