"""What a request for a response may not be: each refusal names the parameter that was sent."""

import json
import logging
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http_service import http_client, running_bundled_pair

RESPONSES = "/v1/responses"
BODY: dict[str, Any] = {"input": "x", "max_output_tokens": 1}
USER = {"role": "user", "content": "x"}
CLOCK = {"type": "function", "name": "clock"}
DEEP: Any = json.loads('{"a":' * 70 + "1" + "}" * 70)
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "is not supported: responses are not stored"),
    ({"conversation": "conv_1"}, "conversation", "is not supported: conversations are not stored"),
    ({"conversation": {"id": "conv_1"}}, "conversation", "not supported"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "is not supported: templates are not stored"),
    ({"background": True}, "background", "is not supported"),
    ({"max_tokens": 5}, "max_tokens", "use max_output_tokens"),
    ({"max_tokens": 0}, "max_tokens", "use max_output_tokens"),
    ({"response_format": {"type": "json_object"}}, "response_format", "use text.format"),
    ({"prompt_logprobs": 0}, "prompt_logprobs", "is not supported"),
    ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "is not supported"),
    ({"bad_words": ["x"]}, "bad_words", "is not supported"),
    ({"regex": "a"}, "regex", "use structured_outputs"),
    ({"truncation": "auto"}, "truncation", "must be disabled"),
    ({"include": ["file_search_call.results"]}, "include", "message.output_text.logprobs or reasoning.encrypted"),
    ({"n": 2}, "n", "less than or equal to 1"),
    ({"tools": [{"type": "web_search"}]}, "tools", "must be function"),
    ({"tools": [{"type": "function", "name": "two words"}]}, "tools", "pattern"),
    ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools", "name"),
    ({"tools": [CLOCK] * 129}, "tools", "128"),
    ({"tools": [CLOCK, CLOCK]}, "tools", "one name"),
    ({"tools": [{**CLOCK, "parameters": {"type": "x"}}]}, "tools", "tools"),
    ({"tools": [{**CLOCK, "parameters": DEEP}]}, "tools", "64 levels"),
    ({"tools": [{**CLOCK, "description": "\ud800"}], "tool_choice": "none"}, "tools", "surrogate"),
    ({"tools": [{**CLOCK, "parameters": {"default": math.nan}}], "tool_choice": "none"}, "tools", "JSON does not have"),
    ({"tools": [CLOCK], "tool_choice": {"type": "web_search"}}, "tool_choice", "must be none, auto or required"),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "none of the tools"),
    (
        {"tools": [CLOCK], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        "tool_choice",
        "must be",
    ),
    ({"tool_choice": "required"}, "tool_choice", "no tools"),
    ({"tools": [CLOCK], "text": {"format": {"type": "json_object"}}}, "tools", "cannot be combined"),
    ({"text": {"format": {"type": "json_object"}}, "min_tokens": 1}, "min_tokens", "combined with text.format, which"),
    ({"text": {"format": {"type": "xml"}}}, "text", "json_schema"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text", "text.format: of type json_schema must have"),
    ({"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "text", "text.format"),
    ({"text": {"format": {"type": "json_schema", "schema": DEEP}}}, "text", "64 levels"),
    ({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}, "text", "combined with guided_regex"),
    ({"guided_regex": "("}, "guided_regex", "guided_regex"),
    ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "16"),
    ({"metadata": {"k": "x" * 513}}, "metadata", "512"),
    ({"metadata": {"k" * 65: "x"}}, "metadata", "64"),
    ({"metadata": {"k": "\ud800"}}, "metadata", "surrogate"),
    ({"metadata": {"k": 5}}, "metadata", "is no text"),
    ({"metadata": ["k"]}, "metadata", "must be an object"),
    ({"max_completion_tokens": 5}, "max_completion_tokens", "use max_output_tokens"),
    ({"logprobs": True}, "logprobs", "use include"),
    ({"echo": True}, "echo", "is not supported"),
    ({"tools": [CLOCK], "stop": "x"}, "stop", "cannot be combined with tools here"),
    ({"tools": [CLOCK], "stop_token_ids": [1]}, "stop_token_ids", "cannot be combined with tools here"),
    ({"user": "\ud800"}, "user", "surrogate"),
    ({"instructions": "\ud800"}, "instructions", "surrogate"),
    ({"instructions": "x" * 100_000}, "input", "input"),
    ({"max_output_tokens": 0}, "max_output_tokens", "between 1"),
    ({"top_logprobs": 21}, "top_logprobs", "between 0 and 20"),
    ({"top_logprobs": 2, "num_beams": 2}, "top_logprobs", "top_logprobs"),
    ({"include": ["message.output_text.logprobs"], "num_beams": 2}, "include", "include"),
    ({"temperature": -1}, "temperature", "between 0.0 and 100.0"),
    ({"stop": [""]}, "stop", "between 1 and 256"),
    ({"num_speculative_tokens": 17}, "num_speculative_tokens", "between 0 and 16"),
    ({"continue_final_message": True}, "continue_final_message", "of the assistant"),
]
INPUTS: list[tuple[Any, str]] = [
    (None, "must be a text or a list of items"),
    (5, "must be a text or a list of items"),
    ([], "at least 1 item"),
    ([USER] * 4097, "at most 4096"),
    (["x"], "one of the types message, function_call, function_call_output, reasoning"),
    ([{"type": "item_reference", "id": "msg_1"}], "one of the types"),
    ([{"type": "web_search_call", "id": "ws_1", "status": "completed"}], "one of the types"),
    ([{"type": ["message"], **USER}], "one of the types"),
    ([USER, {"role": "tool", "content": "x"}], "input[1].role: "),
    ([{"role": "user"}], "input[0].content: "),
    ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}], "input_text or output_text"),
    ([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}], "input_text or output_text"),
    ([{"role": "user", "content": "\ud800"}], "surrogate"),
    ([{"type": "function_call", "call_id": "1", "name": "two words", "arguments": ""}], "name"),
    ([{"type": "function_call", "name": "x", "arguments": ""}], "input[0].call_id: "),
    ([{"type": "function_call_output", "call_id": "1", "output": {"a": 1}}], "input[0].output: "),
    ([{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}], "input[0].content[0].type: "),
]


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with running_bundled_pair() as pair, http_client(pair) as client:
        yield client
        await pair.check_clean()


async def refused(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """The error, which is the same for a stream; half characters need escapes that httpx does not write."""
    errors = []
    for is_stream in (False, True):
        content = json.dumps({**BODY, **body, "stream": is_stream})
        answer = await client.post(RESPONSES, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
        errors.append(answer.json()["error"])
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.parametrize(("body", "parameter", "words"), CASES)
async def test_refusals_name_the_parameter(
    client: httpx.AsyncClient, body: dict[str, Any], parameter: str, words: str
) -> None:
    error = await refused(client, body)
    assert (error["param"], error["type"]) == (parameter, "invalid_request_error"), error
    assert error["message"].startswith(parameter) and words in error["message"], error
    assert len(error["message"]) < 300


@pytest.mark.parametrize(("value", "words"), INPUTS)
async def test_refusals_of_items_say_what_is_wrong(client: httpx.AsyncClient, value: Any, words: str) -> None:
    error = await refused(client, {"input": value})
    assert error["param"] == "input"
    assert words in error["message"] and len(error["message"]) < 300, error


async def test_an_input_is_needed(client: httpx.AsyncClient) -> None:
    answer = await client.post(RESPONSES, json={"instructions": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "input", "missing_required_parameter")


async def test_instructions_and_items_together_are_no_more_than_chat_has_messages(client: httpx.AsyncClient) -> None:
    error = await refused(client, {"input": [USER] * 4096, "instructions": "x"})
    assert error["param"] == "input" and "4096" in error["message"]


async def test_too_long_an_input_is_named_as_openai_does(client: httpx.AsyncClient) -> None:
    error = await refused(client, {"input": "x " * 8000})
    assert (error["param"], error["code"]) == ("input", "context_length_exceeded")


async def test_a_model_that_is_not_served_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(RESPONSES, json={**BODY, "model": "gpt-4"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_what_asks_for_nothing_is_taken(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """As OpenAI's clients and its Agents SDK send it, and what no text depends on."""
    names = ("previous_response_id", "conversation", "prompt", "background", "response_format", "max_tokens", "n")
    nothing = dict.fromkeys([*names, "truncation", "include", "text", "tools", "tool_choice", "metadata", "user"])
    idle = {"background": False, "include": ["reasoning.encrypted_content"], "truncation": "disabled", "text": {}}
    idle |= {"store": True, "service_tier": "auto", "prompt_cache_key": "x", "prompt_cache_retention": "24h"}
    for body in (nothing, idle, {"stream_options": {"include_obfuscation": False}}):
        answer = await client.post(RESPONSES, json={**BODY, **body})
        assert answer.status_code == 200, answer.text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await client.post(RESPONSES, json={**BODY, "reasoning": {"effort": "low"}})).status_code == 200
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage() == "unknown parameters are ignored: reasoning"
