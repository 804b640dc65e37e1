"""What a body, a path or a header may be, and that no answer says more than it should."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import httpx
import pytest

from tests.http_service import PROMPT, running_bundled_pair
from tests.services import RunningPair


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair


@pytest.mark.parametrize(
    ("given", "taken"),
    [("my-id.7", True), ("x" * 128, True), ("x" * 129, False), ("two words", False), ("a\tb", False), ("", False)],
)
async def test_request_ids(client: httpx.AsyncClient, given: str, taken: bool) -> None:
    answer = await client.post(
        "/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}, headers={"x-request-id": given}
    )
    request_id = answer.headers["x-request-id"]
    assert (request_id == given) is taken
    assert answer.json()["id"] == f"cmpl-{request_id}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"prompt": "' + b"x" * 5_000_000 + b'"}', 413),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "x", "temperature": NaN}', 400),
        (b'{"prompt": "x", "temperature": 1' + b"0" * 5000 + b"}", 400),
        (b'{"prompt": "x", "stop": [' + b"1," * 500_000 + b"1]}", 400),
        (b'{"prompt": "x", "n": 4294967295}', 400),
        (b"\xff\xfe", 400),
    ],
)
async def test_bad_bodies(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    answer = await client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert len(answer.text) < 1000, "an error does not repeat what it was sent"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize"])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
        b'{"prompt": "x", "seed": 1' + b"0" * 5000 + b"}",
        gzip.compress(b'{"prompt": "x"}'),
    ],
    ids=["cut off", "no UTF-8", "deep", "a long integer", "gzip"],
)
async def test_a_body_that_cannot_be_read_is_no_json(client: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == ("invalid_json", None)
    assert "JSON" in error["message"]


async def test_bodies_of_unknown_length_are_bounded(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(80):
            yield b"x" * 65536

    answer = await client.post("/v1/completions", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_other_sites_cannot_ask(client: httpx.AsyncClient) -> None:
    """What a browser sends for a stranger's page without asking first is no JSON by its type."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = await client.post("/v1/completions", content=b'{"prompt": "x"}', headers={"content-type": kind})
        assert answer.status_code == 400


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", None])
async def test_a_body_of_another_type_is_told_the_header(
    client: httpx.AsyncClient, path: str, kind: str | None
) -> None:
    """curl sends the first of these, unless it is told the header."""
    headers = {} if kind is None else {"content-type": kind}
    answer = await client.post(path, content=b'{"prompt": "x", "messages": []}', headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == ("invalid_content_type", None)
    assert "content-type: application/json" in error["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "the body is empty"), (b"null", "a JSON object"), (b"[]", "a JSON object"), (b'"x"', "a JSON object")],
)
async def test_a_body_that_is_no_object_is_told_so(client: httpx.AsyncClient, body: bytes, words: str) -> None:
    answer = await client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, None)
    assert words in error["message"]


async def test_metrics_in_both_formats(client: httpx.AsyncClient) -> None:
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    accepted = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert accepted.headers["content-type"].startswith("application/openmetrics-text")
    assert accepted.text.endswith("# EOF\n")


async def test_strangers_get_no_text_of_unforeseen_errors(
    pair: RunningPair, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> NoReturn:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr("coordinator.serving.serving.score_prompt", fail)
    for body in ({"prompt": PROMPT}, {"prompt": PROMPT, "stream": True}):
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "internal error"
        assert answer.headers["x-request-id"]
    assert sum("/secret/path" in (record.exc_text or "") for record in caplog.records) == 2
    await pair.check_clean()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "\ud800"},
        {"role": "\ud800", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "\udfff"}]},
    ],
)
async def test_half_a_surrogate_is_no_text(client: httpx.AsyncClient, message: dict[str, Any]) -> None:
    """JSON can hold what UTF-8 cannot."""
    body = json.dumps({"messages": [message], "max_tokens": 4})
    response = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("messages")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "x", "description": "\ud800"}}]),
        ("tools", [{"type": "function", "function": {"name": "x", "parameters": {"default": "\ud800"}}}]),
        ("guided_json", {"description": "\ud800"}),
        ("guided_json", '{"description": "\ud800"}'),
        ("chat_template_kwargs", {"x": "\ud800"}),
    ],
)
async def test_half_a_surrogate_is_no_text_in_a_schema_either(client: httpx.AsyncClient, name: str, value: Any) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, name: value})
    response = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, name)
