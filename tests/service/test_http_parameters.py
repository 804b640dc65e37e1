"""Parameters that are not served: those that would change the text are refused, others ignored and named in the log.
And the codes of values that are refused."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http_service import PROMPT, http_client, running_bundled_pair

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES: dict[str, Any] = {
    COMPLETIONS: {"prompt": PROMPT, "max_tokens": 1},
    CHAT: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
}
UNSUPPORTED = [
    (path, name, value)
    for path in BODIES
    for name, value in (
        ("bad_words", ["print"]),
        ("include_stop_str_in_output", True),
        ("truncate_prompt_tokens", 5),
        ("truncate_prompt_tokens", 0),
        ("truncate_prompt_tokens", -1),
    )
]
OF_OTHER_SERVERS: dict[str, Any] = {
    "regex": "a+",
    "ebnf": 'root ::= "a"',
    "grammar": 'root ::= "a"',
    "json_schema": {"type": "object"},
}
DEFAULTS: dict[str, Any] = {"bad_words": [], "include_stop_str_in_output": False, "truncate_prompt_tokens": None}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with running_bundled_pair() as pair, http_client(pair) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "name", "value"), [*UNSUPPORTED, (CHAT, "echo", True), (COMPLETIONS, "suffix", "end")]
)
async def test_what_would_change_the_text_is_refused(
    client: httpx.AsyncClient, path: str, name: str, value: Any
) -> None:
    for is_stream in (False, True):
        answer = await client.post(path, json={**BODIES[path], "stream": is_stream, name: value})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, name, "invalid_value")
        assert error["message"] == f"{name}: is not supported"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", OF_OTHER_SERVERS)
async def test_structures_by_the_names_of_other_servers_are_not_ignored(
    client: httpx.AsyncClient, path: str, name: str
) -> None:
    error = (await refused(client, path, **{name: OF_OTHER_SERVERS[name]}))["error"]
    assert error["message"] == f"{name}: is not supported; use structured_outputs" and error["param"] == name
    assert (await client.post(path, json={**BODIES[path], name: {}})).status_code == 400, "{} is any JSON for llama.cpp"
    for nothing in (None, ""):
        assert (await client.post(path, json={**BODIES[path], name: nothing})).status_code == 200


@pytest.mark.parametrize(
    ("path", "sent", "name"),
    [
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"logprobs": True, "num_beams": 2}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
        (COMPLETIONS, {"use_beam_search": True, "n": 20}, "n"),
        (COMPLETIONS, {"num_beams": 200}, "num_beams"),
    ],
)
async def test_a_parameter_is_named_as_it_was_sent(
    client: httpx.AsyncClient, path: str, sent: dict[str, Any], name: str
) -> None:
    error = (await refused(client, path, **sent))["error"]
    assert (error["param"], error["message"].split(":")[0]) == (name, name)


@pytest.mark.parametrize("path", BODIES)
async def test_their_defaults_are_taken(client: httpx.AsyncClient, path: str) -> None:
    for given in (DEFAULTS, dict.fromkeys([*DEFAULTS, "echo", "suffix"]), {"echo": False}):
        answer = await client.post(path, json={**BODIES[path], **given})
        assert answer.status_code == 200, answer.text


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("path", BODIES)
async def test_unknown_names_are_in_the_log_without_their_values(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    unknown = {"temprature": "a-secret", "max-tokens": ["a-secret"], "a text\nof a client": 1, "": 2, "x" * 65: 3}
    unknown |= {"store": True, "metadata": {"a": "b"}}  # they change no text
    for is_stream in (False, True):
        caplog.clear()
        body = json.dumps({**BODIES[path], "stream": is_stream, "n": 2, **unknown})
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200
        assert warnings(caplog) == ["unknown parameters are ignored: max-tokens, temprature, 3 not named"]
        (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
        assert record.__dict__["request"] == answer.headers["x-request-id"]


async def test_many_unknown_names_are_one_short_line(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = {f"{number:064}": 0 for number in range(10_000)}
    answer = await client.post(COMPLETIONS, json={**BODIES[COMPLETIONS], **unknown})
    assert answer.status_code == 200
    (line,) = warnings(caplog)
    assert len(line) < 1000 and line.endswith("9992 not named")


@pytest.mark.parametrize("path", BODIES)
async def test_known_names_are_not_in_the_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    assert (await client.post(path, json={**BODIES[path], "user": "me", "model": None})).status_code == 200
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("path", "name", "value", "code"),
    [
        (COMPLETIONS, "top_k", -5, "invalid_value"),
        (COMPLETIONS, "logprobs", -1, "invalid_value"),
        (COMPLETIONS, "max_tokens", -1, "invalid_value"),
        (COMPLETIONS, "max_tokens", 2**32, "invalid_value"),
        (COMPLETIONS, "max_tokens", 10**30, "invalid_value"),
        (COMPLETIONS, "seed", -(2**63) - 1, "invalid_value"),
        (COMPLETIONS, "rule", "x", "invalid_value"),
        (COMPLETIONS, "early_stopping", "always", "invalid_value"),
        (COMPLETIONS, "stop_token_ids", [-1], "invalid_value"),
        (COMPLETIONS, "allowed_token_ids", [], "invalid_value"),
        (COMPLETIONS, "prompt", [-1], "invalid_value"),
        (COMPLETIONS, "logit_bias", {"x": 1}, "invalid_value"),
        (COMPLETIONS, "temperature", -1, "invalid_value"),
        (CHAT, "tool_choice", "maybe", "invalid_value"),
        (CHAT, "tool_choice", {"type": "function"}, "invalid_value"),
        (CHAT, "response_format", {"type": "xml"}, "invalid_value"),
        (CHAT, "tools", [{"type": "function", "function": {"name": "two words"}}], "invalid_value"),
        (CHAT, "guided_json", 5, "invalid_type"),
        (COMPLETIONS, "top_k", "many", "invalid_type"),
        (COMPLETIONS, "max_tokens", 1.5, "invalid_type"),
        (COMPLETIONS, "stream", [], "invalid_type"),
        (COMPLETIONS, "prompt", {}, "invalid_type"),
        (CHAT, "messages", "x", "invalid_type"),
        (CHAT, "messages", [{}], "missing_required_parameter"),
        (CHAT, "messages", [{"role": "narrator"}], "invalid_value"),
    ],
)
async def test_a_wrong_value_and_a_wrong_type_have_codes_of_their_own(
    client: httpx.AsyncClient, path: str, name: str, value: Any, code: str
) -> None:
    error = (await refused(client, path, **{name: value}))["error"]
    assert (error["param"], error["code"]) == (name, code), error


@pytest.mark.parametrize("count", [5_000, 15_000])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_prompt_that_is_too_long_is_told_so_however_long_it_is(
    client: httpx.AsyncClient, count: int, is_stream: bool
) -> None:
    """The longer one is refused by its characters, before it is tokenized."""
    text = "hello " * count
    bodies: dict[str, dict[str, Any]] = {
        COMPLETIONS: {"prompt": text},
        CHAT: {"messages": [{"role": "user", "content": text}]},
        "/v1/responses": {"input": text},
    }
    for path, body in bodies.items():
        answer = await client.post(path, json={**body, "stream": is_stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, *body, "context_length_exceeded"), error


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tool_choice", "maybe", "tool_choice: must be none, auto or required, name a function"),
        ("tool_choice", {"type": "function", "function": {"name": "two words"}}, "tool_choice: must be none, auto"),
        ("early_stopping", "always", "early_stopping: must be true, false or never"),
        ("guided_json", 5, "guided_json: must be a JSON Schema"),
        ("structured_outputs", {"json": 5}, "structured_outputs.json: must be a JSON Schema"),
    ],
)
async def test_a_parameter_of_several_types_is_named_without_them(
    client: httpx.AsyncClient, name: str, value: Any, words: str
) -> None:
    assert (await refused(client, CHAT, **{name: value}))["error"]["message"].startswith(words)


async def refused(client: httpx.AsyncClient, path: str, **changes: Any) -> dict[str, Any]:
    answer = await client.post(path, json={**BODIES[path], **changes})
    assert answer.status_code == 400, answer.text
    return answer.json()
