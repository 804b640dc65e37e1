"""What llama-server is asked, and what is read from its answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bench.case import Case, Peer, Weights
from bench.llama_client import counts_of, event_of, read_completion, request_for
from command.failures import CommandError

LAST = {"stop": True, "tokens": [], "tokens_predicted": 4, "timings": {"draft_n": 6, "draft_n_accepted": 2}}


async def lines_of(*events: dict[str, Any]) -> AsyncIterator[str]:
    for event in events:
        yield f"data: {json.dumps(event)}"
        yield ""


def token(token_id: int, count: int) -> dict[str, Any]:
    """The event of a token, the `count`-th."""
    return {"stop": False, "tokens": [token_id], "tokens_predicted": count}


def request(temperature: float) -> dict[str, Any]:
    case = Case(peer=Peer.LLAMA, temperature=temperature, weights=Weights.BF16, num_speculative_tokens=3)
    return request_for(case, [1, 2], 8, 5)


def test_a_request_samples_from_the_whole_distribution() -> None:
    body = request(0.7)
    assert body["samplers"] == ["temperature"]
    assert (body["temperature"], body["seed"], body["n_predict"], body["prompt"]) == (0.7, 5, 8, [1, 2])


def test_a_greedy_request_keeps_one_token() -> None:
    assert request(0.0)["samplers"] == ["top_k"]
    assert request(0.0)["top_k"] == 1


def test_nothing_is_reused_and_nothing_ends_the_text() -> None:
    body = request(0.0)
    assert body["cache_prompt"] is False
    assert body["ignore_eos"] is True


async def test_tokens_are_timed_as_they_arrive() -> None:
    answer = await read_completion(lines_of(token(7, 1), token(8, 2), token(9, 3), token(5, 4), LAST))
    assert answer.received.token_ids == [7, 8, 9, 5]
    assert (answer.received.first_count, answer.received.count) == (1, 4)
    assert len(answer.received.arrivals) == 4
    assert answer.received.arrivals == sorted(answer.received.arrivals)


async def test_a_token_that_ends_within_a_character_is_counted() -> None:
    """The server sends nothing for it, and the next event has only its own id."""
    answer = await read_completion(lines_of(token(7, 1), token(9, 3), token(5, 4), LAST))
    assert answer.received.token_ids == [7, 9, 5]
    assert answer.received.count == 4


async def test_a_round_gives_its_accepted_tokens_and_one_more() -> None:
    answer = await read_completion(lines_of(token(7, 1), LAST))
    assert answer.counts == counts_of({"draft_n": 6, "draft_n_accepted": 2}, 3)
    assert (answer.counts.rounds, answer.counts.drafted, answer.counts.accepted) == (1, 6, 2)


def test_plain_decoding_has_a_round_for_each_token() -> None:
    counts = counts_of({"predicted_n": 4}, 3)
    assert (counts.rounds, counts.drafted, counts.accepted) == (3, 0, 0)


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    with pytest.raises(CommandError, match="early"):
        await read_completion(lines_of(token(7, 1)))


@pytest.mark.parametrize("line", ['error: {"message": "out of room"}', 'data: {"error": {"message": "out of room"}}'])
def test_an_error_of_the_server_is_said(line: str) -> None:
    with pytest.raises(CommandError, match="out of room"):
        event_of(line)


@pytest.mark.parametrize("line", ["", ": ping", "event: message"])
def test_lines_without_data_are_passed_over(line: str) -> None:
    assert event_of(line) is None
