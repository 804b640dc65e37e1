"""What vLLM's server is asked, and what is read from its answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bench.case import Case, Peer
from bench.vllm_client import read_completion, request_for
from command.failures import CommandError


async def lines_of(*events: dict[str, Any], is_whole: bool = True) -> AsyncIterator[str]:
    for event in events:
        yield f"data: {json.dumps(event)}"
        yield ""
    if is_whole:
        yield "data: [DONE]"


def tokens(*token_ids: int) -> dict[str, Any]:
    """The event of a pass; its text may be empty, where a character is not complete."""
    return {"choices": [{"index": 0, "text": "", "token_ids": list(token_ids)}]}


def test_a_request_samples_from_the_whole_distribution_and_does_not_end() -> None:
    case = Case(peer=Peer.VLLM, temperature=0.7, num_speculative_tokens=3)
    body = request_for(case, [1, 2], 8, 5)
    assert (body["temperature"], body["seed"], body["max_tokens"], body["prompt"]) == (0.7, 5, 8, [1, 2])
    assert (body["top_k"], body["top_p"]) == (0, 1.0)
    assert body["ignore_eos"] is True


async def test_tokens_are_timed_as_they_arrive() -> None:
    received = await read_completion(lines_of(tokens(7), tokens(8, 9), tokens(), tokens(5)))
    assert received.token_ids == [7, 8, 9, 5]
    assert (received.first_count, received.count) == (1, 4)
    assert len(received.arrivals) == 3
    assert received.arrivals == sorted(received.arrivals)


async def test_an_event_without_choices_has_no_tokens() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 1}}
    assert (await read_completion(lines_of(tokens(7), usage))).count == 1


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    with pytest.raises(CommandError, match="early"):
        await read_completion(lines_of(tokens(7), is_whole=False))


async def test_an_error_of_the_server_is_said() -> None:
    with pytest.raises(CommandError, match="out of room"):
        await read_completion(lines_of(tokens(7), {"error": {"message": "out of room"}}))
