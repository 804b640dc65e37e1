"""Parameters that are not served: those that would change the text are refused, others ignored and named in the log."""

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
