"""The events of a response: typed, numbered, in order, and in the end the whole response."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import openai
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, Field, TypeAdapter

from tests.http_service import http_client, openai_client, running_bundled_pair, wait_until_working
from tests.scripted_models import END, make_scripted_model
from tests.services import RunningPair, engine_config, running_pair

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RESPONSES = "/v1/responses"
LONG: dict[str, Any] = {"input": "def read_lines(path):", "max_output_tokens": 1500, "ignore_eos": True}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": {"type": "object", "maxProperties": 0}}
TEXT = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
THOUGHT = [kind.replace("output_text", "reasoning_text") for kind in TEXT]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]
SCRIPTS = {
    "#": ["<th", "ink>\n", "Let me", " see", ".\n</", "think", ">\n", "\nThe", " answer", END],
    "$": ["<think>a", "?", "</think>", "Now: ", "<tool_call>\n", '{"name": "', END],
    "=": ["<think>five</th", "ink>", "5", END],
}


class Answer(BaseModel):
    """What the model has to write."""

    mood: Literal["good", "bad"]
    count: int = Field(ge=0, le=20)


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(max_requests=4, max_queued_requests=0) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module")
async def thinking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    """A pair of a model that writes what is wanted. Rounds commit several tokens."""
    config = engine_config(make_scripted_model(tmp_path_factory.mktemp("scripted"), SCRIPTS))
    async with running_pair(config, config, num_speculative_tokens=3, reasoning_parser="qwen3") as pair:
        yield pair
        await pair.check_clean()


def scripted(opening: str, **others: Any) -> dict[str, Any]:
    """A greedy request whose prompt ends with `opening`."""
    body = {"input": "Hi ", "chat_template_kwargs": {"opening": opening}, "temperature": 0, "max_output_tokens": 60}
    return {**body, **others}


async def events_of(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, which are what OpenAI's types say, and numbered."""
    answer = await client.post(RESPONSES, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\n")
    events = []
    for event in answer.text.removesuffix("\n\n").split("\n\n"):
        kind, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
        EVENTS.validate_python(events[-1])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def order(events: list[dict[str, Any]]) -> list[str]:
    """The types of the events; deltas that follow each other count once."""
    kinds = [event["type"].removeprefix("response.") for event in events]
    return [kind for place, kind in enumerate(kinds) if kind not in kinds[max(place - 1, 0) : place]]


def items_of(response: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The type, the status and the text of each item."""
    return [(item["type"], item["status"], text_of(item)) for item in response["output"]]


def text_of(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return f"{item['name']}({item['arguments']})"
    (part,) = item["content"]
    return part["text"]


async def both(pair: RunningPair, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole response and the events of the same request; they end with the same response."""
    async with http_client(pair) as client:
        answer = await client.post(RESPONSES, json=body)
        assert answer.status_code == 200, answer.text
        events = await events_of(client, body)
    whole, told = answer.json(), events[-1]["response"]
    assert items_of(told) == items_of(whole)
    for name in ("status", "incomplete_details", "instructions", "tools", "text", "model"):
        assert told[name] == whole[name]
    assert whole.keys() == told.keys() and whole["usage"]["output_tokens"] == told["usage"]["output_tokens"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert told["output"] == done
    return whole, events


async def test_events_of_a_text(pair: RunningPair) -> None:
    body = {"input": "def", "instructions": "x", "max_output_tokens": 12, "temperature": 0, "tools": [CLOCK]}
    whole, events = await both(pair, body)
    assert order(events) == ["created", "in_progress", *TEXT, "output_item.done", "incomplete"]
    first, second = events[0]["response"], events[1]["response"]
    assert first == second and (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) > 1 and "".join(deltas) == text_of(whole["output"][0])
    assert {event["response"]["id"] for event in events if "response" in event} == {first["id"]}
    assert {event["output_index"] for event in events if "output_index" in event} == {0}
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1


async def test_openai_client_puts_a_stream_together(pair: RunningPair) -> None:
    async with openai_client(pair) as client:
        options: dict[str, Any] = {"model": "target", "input": "x", "max_output_tokens": 300}
        options["extra_body"] = {"seed": 3, "rule": "coupled"}
        whole = await client.responses.parse(**options, text_format=Answer)
        async with client.responses.stream(**options, text_format=Answer) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        assert isinstance(response.output_parsed, Answer) and response.output_parsed == whole.output_parsed
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert response.usage is not None and (response.model_extra or {})["seed"] == 3


async def test_openai_client_gets_the_parts_of_calls(pair: RunningPair) -> None:
    async with openai_client(pair) as client:
        options: dict[str, Any] = {"model": "target", "input": "x", "tools": [CLOCK], "max_output_tokens": 900}
        stream = await client.responses.create(**options, tool_choice="required", stream=True, extra_body={"seed": 5})
        arguments: dict[int, str] = {}
        events = [event async for event in stream]
        for event in events:
            if event.type == "response.function_call_arguments.delta":
                arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
        last = events[-1]
        assert last.type == "response.completed"
        calls: list[Any] = last.response.output
        assert len(calls) > 1
        assert [call.arguments for call in calls] == list(arguments.values())
        assert all(json.loads(call.arguments) == {} for call in calls)


async def test_reasoning_is_an_item_before_the_answer(thinking: RunningPair) -> None:
    whole, events = await both(thinking, scripted("#"))
    assert items_of(whole) == [("reasoning", "completed", "Let me see."), ("message", "completed", "The answer")]
    ends = ["output_item.done"]
    assert order(events) == ["created", "in_progress", *THOUGHT, *ends, *TEXT, *ends, "completed"]
    assert whole["output"][0]["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


async def test_reasoning_that_is_cut_off_is_all_there_is(thinking: RunningPair) -> None:
    whole, events = await both(thinking, scripted("#", max_output_tokens=4))
    assert items_of(whole) == [("reasoning", "incomplete", "Let me see")]
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert order(events)[-2:] == ["output_item.done", "incomplete"]


async def test_calls_come_after_reasoning_and_text(thinking: RunningPair) -> None:
    body = scripted("$", tools=[CLOCK], parallel_tool_calls=False, max_output_tokens=200)
    whole, events = await both(thinking, body)
    assert items_of(whole) == [
        ("reasoning", "completed", "a?"),
        ("message", "completed", "Now:"),
        ("function_call", "completed", "clock({})"),
    ]
    ends = ["output_item.done"]
    assert order(events) == ["created", "in_progress", *THOUGHT, *ends, *TEXT, *ends, *CALL, *ends, "completed"]


async def test_a_structured_output_is_that_of_the_answer(thinking: RunningPair) -> None:
    structure = {"format": {"type": "json_schema", "name": "n", "schema": {"const": 5}}}
    whole, _ = await both(thinking, scripted("=", text=structure))
    assert items_of(whole) == [("reasoning", "completed", "five"), ("message", "completed", "5")]


async def test_the_template_gets_earlier_reasoning(thinking: RunningPair) -> None:
    """A response that comes back is the message that it was."""
    whole, _ = await both(thinking, scripted("#"))
    items = [{"role": "user", "content": "Hi "}, *whole["output"], {"role": "user", "content": "!"}]
    message = {"role": "assistant", "reasoning_content": "Let me see.", "content": "The answer"}
    messages = [items[0], message, items[-1]]
    layout = {"chat_template_kwargs": {"opening": "#"}, "temperature": 0}
    async with http_client(thinking) as client:
        response = (await client.post(RESPONSES, json={"input": items, **layout})).json()
        chat = (await client.post("/v1/chat/completions", json={"messages": messages, **layout})).json()
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"] > len("Hi Let me see.The answer!")
    said = chat["choices"][0]["message"]
    assert [text_of(item) for item in response["output"]] == [said["reasoning"], said["content"]]


async def test_logprobs_come_with_their_texts(pair: RunningPair) -> None:
    include = ["message.output_text.logprobs"]
    body = {"input": "def", "max_output_tokens": 100, "temperature": 0, "include": include, "top_logprobs": 2}
    whole, events = await both(pair, {**body, "ignore_eos": True})
    (part,) = whole["output"][0]["content"]
    assert len(part["logprobs"]) == 100 and "".join(entry["token"] for entry in part["logprobs"]) == part["text"]
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    parts = [entry for event in deltas for entry in event["logprobs"]]
    for told in (parts, *(event["logprobs"] for event in events if event["type"] == "response.output_text.done")):
        assert [entry["token"] for entry in told] == [entry["token"] for entry in part["logprobs"]]


async def test_leaving_cancels_the_work(
    pair: RunningPair, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "coordinator.serving.accounts")
    async with client.stream("POST", RESPONSES, json={**LONG, "stream": True}) as answer:
        await anext(answer.aiter_lines())
        assert len(pair.target.host.sequences) == 1
    await pair.check_clean()
    asking = asyncio.create_task(client.post(RESPONSES, json=LONG))
    await wait_until_working(pair)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await pair.check_clean()
    told = [record for record in caplog.records if record.name == "coordinator.serving.accounts"]
    assert [record.getMessage() for record in told] == ["request cancelled"] * 2


async def test_a_full_house_refuses_responses_before_their_first_event(
    pair: RunningPair, client: httpx.AsyncClient
) -> None:
    running = [client.stream("POST", RESPONSES, json={**LONG, "stream": True}) for _ in range(4)]
    async with running[0] as first, running[1], running[2], running[3]:
        assert first.status_code == 200
        for is_stream in (False, True):
            refused = await client.post(RESPONSES, json={**LONG, "stream": is_stream})
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
            assert int(refused.headers["retry-after"]) >= 1
    await pair.check_clean()


async def test_an_error_in_the_middle_is_the_last_event() -> None:
    """With what had come until then. OpenAI's client passes it on, and the stream ends there."""
    async with running_bundled_pair(target_timeout=0.5) as pair, openai_client(pair) as client:
        stream = await client.responses.create(
            model="target", input="x", max_output_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        deltas, events = "", list[Any]()
        async for event in stream:
            events.append(event)
            EVENTS.validate_python(event.to_dict())
            if event.type == "response.output_text.delta":
                deltas += event.delta
                await pair.target.stop()
        assert events[-1].type == "response.failed"
        response = events[-1].response
        assert (response.status, response.usage) == ("failed", None)
        assert response.error is not None and "target" in response.error.message
        assert (response.error.code, response.error.type) == ("server_error", "service_unavailable_error")
        assert items_of(response.to_dict()) == [("message", "incomplete", deltas)]
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model="target", input="x")
        assert (caught.value.status_code, caught.value.code) == (503, "peer_unavailable")
