"""How many logprobs an answer may hold: what is counted, what is refused, and what is made shorter."""

from typing import Any

import pytest

from coordinator.requests.logprob_limit import (
    MAX_LOGPROB_COUNT,
    prompt_logprob_count,
    token_logprob_count,
    within_logprob_limit,
)
from coordinator.requests.request import GenerationRequest
from specpair.errors import InvalidFieldError
from specpair.options import SamplingOptions


def request(prompt_length: int = 10, max_tokens: int = 100, min_tokens: int = 0, **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        prompt_ids=(1,) * prompt_length,
        sampling=SamplingOptions(min_tokens=min_tokens),
        max_tokens=max_tokens,
        num_speculative_tokens=None,
        **{"best_of": fields.get("n", 1), **fields},
    )


@pytest.mark.parametrize(
    ("fields", "of_prompt", "of_token"),
    [
        ({}, 0, 0),
        ({"logprobs": 0}, 0, 1),
        ({"logprobs": 20, "n": 32}, 0, 32 * 21),
        ({"logprobs": 1, "n": 2, "best_of": 5}, 0, 5 * 2),
        ({"prompt_logprobs": 20, "n": 32}, 10 * 21, 0),
        ({"prompt_logprobs": 0, "logprobs": 3, "n": 4}, 10, 4 * 4),
        ({"prompt_logprobs": 2, "logprobs": 3, "n": 4, "echo": True}, 4 * 10 * 3, 4 * 4),
        ({"echo": True}, 0, 0),
    ],
)
def test_what_is_counted(fields: dict[str, Any], of_prompt: int, of_token: int) -> None:
    asked = request(**fields)
    assert (prompt_logprob_count(asked), token_logprob_count(asked)) == (of_prompt, of_token)


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("has_max_tokens", [False, True])
def test_up_to_the_limit_nothing_changes(shares: int, has_max_tokens: bool) -> None:
    fits = request(prompt_length=100, max_tokens=MAX_LOGPROB_COUNT // shares - 100, prompt_logprobs=0, logprobs=0)
    assert within_logprob_limit(fits, has_max_tokens=has_max_tokens, shares=shares) is fits


def test_beyond_it_the_fields_are_named() -> None:
    asked = request(prompt_length=1000, max_tokens=1000, n=32, logprobs=20, prompt_logprobs=20, echo=True)
    with pytest.raises(InvalidFieldError) as caught:
        within_logprob_limit(asked, has_max_tokens=True)
    assert caught.value.metadata == {"field": "logprobs", "limit": str(MAX_LOGPROB_COUNT)}
    assert caught.value.message == (
        "logprobs: n 32, logprobs 20, prompt_logprobs 20, max_tokens 1000 and a prompt of 1000 tokens make 1344000 "
        "logprobs; at most 300000 fit"
    )
    prompt_alone = request(prompt_length=MAX_LOGPROB_COUNT, prompt_logprobs=1)
    with pytest.raises(InvalidFieldError, match=r"^prompt_logprobs: "):
        within_logprob_limit(prompt_alone, has_max_tokens=False)


def test_a_length_that_nobody_asked_for_is_shortened() -> None:
    asked = request(prompt_length=100, max_tokens=MAX_LOGPROB_COUNT, n=2, logprobs=4, prompt_logprobs=0)
    shortened = within_logprob_limit(asked, has_max_tokens=False)
    assert shortened.max_tokens == (MAX_LOGPROB_COUNT - 100) // 10
    assert within_logprob_limit(shortened, has_max_tokens=True) is shortened
    least = request(max_tokens=MAX_LOGPROB_COUNT, min_tokens=MAX_LOGPROB_COUNT // 2, logprobs=4)
    with pytest.raises(InvalidFieldError, match=r"^logprobs: "):
        within_logprob_limit(least, has_max_tokens=False)


def test_an_output_is_not_made_shorter_than_what_was_received_of_it() -> None:
    limits = {"max_tokens": MAX_LOGPROB_COUNT, "logprobs": 0, "prompt_logprobs": None}
    room = MAX_LOGPROB_COUNT // 2
    fits = request(**{**limits, "resumed_ids": (1,) * room, "logprobs": 1})
    assert within_logprob_limit(fits, has_max_tokens=False).max_tokens == room
    with pytest.raises(InvalidFieldError, match=r"^logprobs: "):
        within_logprob_limit(
            request(**{**limits, "resumed_ids": (1,) * (room + 1), "logprobs": 1}), has_max_tokens=False
        )
