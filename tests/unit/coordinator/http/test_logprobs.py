"""The likeliest tokens of a completion, by name, and among them the token that was drawn."""

import pytest

from coordinator.http.json_pieces import Rows
from coordinator.http.logprobs import completion_logprobs
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.logprobs_pb2 import TokenLogprobs

TEXTS = {1: "a", 2: "b", 3: "a", 4: ""}


def generated(token_id: int, logprob: float, top: dict[int, float], text: str | None = None) -> pb.GeneratedToken:
    logprobs = TokenLogprobs(logprob=logprob, top_token_ids=list(top), top_logprobs=list(top.values()))
    return pb.GeneratedToken(id=token_id, text=TEXTS[token_id] if text is None else text, logprobs=logprobs)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (generated(1, -1.0, {}), {"a": -1.0}),
        (generated(1, -0.5, {1: -0.5, 2: -2.0}), {"a": -0.5, "b": -2.0}),
        (generated(2, -4.0, {1: -0.5}), {"a": -0.5, "b": -4.0}),
        (generated(2, float("-inf"), {1: 0.0}), {"a": 0.0, "b": -9999.0}),
        (generated(4, -4.0, {1: -0.5}), {"a": -0.5, "token_id:4": -4.0}),
        (generated(4, -0.5, {4: -0.5}, text="é"), {"é": -0.5}),  # the last part of a character
        (generated(2, -4.0, {1: -0.5, 3: -1.0}), {"a": -0.5, "b": -4.0}),
        (generated(3, -4.0, {1: -0.5}), {"a": -4.0}),  # not the other one with its text
    ],
)
def test_the_drawn_token_is_among_the_likeliest(token: pb.GeneratedToken, expected: dict[str, float]) -> None:
    logprobs = completion_logprobs([pb.GeneratedToken(id=1), token], TEXTS.__getitem__, iter((0, 0)))
    names, top = logprobs["tokens"], logprobs["top_logprobs"]
    assert not isinstance(top, Rows)
    assert top == [None, expected]
    assert top[1][names[1]] == logprobs["token_logprobs"][1]
