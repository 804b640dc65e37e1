"""Reasoning beside answers, over the real services of a model that writes what is wanted."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_service import http_client
from tests.scripted_models import END, chat_body, make_scripted_model
from tests.services import RunningPair, engine_config, running_pair

SCRIPTS = {
    "#": ["<th", "ink>\n", "Let me", " see", ".\n</", "think", ">\n", "\nThe", " <think>", "answer", END],
    "\n": ["Hm", ", maybe", "</thi", "nk>", "\n\n", "Yes", " </think>", " indeed", END],
    "\t": ["No", " tags", " here", END],
    " ": ["<think>", "\n \n", "</think>\n\n", "Well", END],
    "+": ["going", " on and", " on.", "\n ", END],
    "$": ["<think>a", "<tool_call>", "?", "</think>b", "Now: ", "<tool_call>\n", '{"name": "', END],
    "=": ["<think>five</th", "ink>", "5", END],
}
CLOCK: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "maxProperties": 0}}}
Answer = tuple[str | None, str | None]
CASES: list[tuple[str, str, Answer]] = [
    ("qwen3", "#", ("Let me see.", "The <think>answer")),
    ("qwen3", "<think>\n", ("Hm, maybe", "Yes </think> indeed")),
    ("qwen3", "<think>\t", ("No tags here", None)),
    ("qwen3", "\t", (None, "No tags here")),
    ("qwen3", "\n", (None, "Hm, maybe</think>\n\nYes </think> indeed")),
    ("qwen3", "<think>\n\n</think>\t", (None, "No tags here")),
    ("qwen3", " ", (None, "Well")),
    ("deepseek_r1", "#", ("Let me see.", "The <think>answer")),
    ("deepseek_r1", "\n", ("Hm, maybe", "Yes </think> indeed")),
    ("deepseek_r1", "\t", ("No tags here", None)),
    ("deepseek_r1", "+", ("going on and on.\n ", None)),
    ("deepseek_r1", "</think>\t", (None, "No tags here")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scripted_model(tmp_path_factory.mktemp("scripted"), SCRIPTS)


@pytest.fixture(scope="module")
async def pairs(folder: Path) -> AsyncIterator[dict[str, RunningPair]]:
    """A pair for each parser. The draft is the target's model, so that rounds commit several tokens."""
    config = engine_config(folder)
    options: Any = {"num_speculative_tokens": 3, "stream_interval": 0.0}
    async with (
        running_pair(config, config, **options, reasoning_parser="qwen3") as qwen3,
        running_pair(config, config, **options, reasoning_parser="deepseek_r1") as deepseek_r1,
    ):
        yield {"qwen3": qwen3, "deepseek_r1": deepseek_r1}
        await qwen3.check_clean()
        await deepseek_r1.check_clean()


@pytest.fixture(params=["qwen3", "deepseek_r1"])
async def client(pairs: dict[str, RunningPair], request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(pairs[request.param]) as client:
        yield client


async def answer_of(pair: RunningPair, body: dict[str, Any]) -> dict[str, Any]:
    async with http_client(pair) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def chunks_of(pair: RunningPair, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with http_client(pair) as client:
        answer = await client.post("/v1/chat/completions", json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")]


def told(message: dict[str, Any]) -> Answer:
    """Reasoning, which has the same text under both names, and content."""
    assert message["reasoning"] == message["reasoning_content"]
    return message["reasoning"], message["content"]


@pytest.mark.parametrize(("parser", "opening", "expected"), CASES)
async def test_reasoning_stands_beside_the_answer(
    pairs: dict[str, RunningPair], parser: str, opening: str, expected: Answer
) -> None:
    answer = await answer_of(pairs[parser], chat_body(opening, n=2, logprobs=True))
    for choice in answer["choices"]:
        assert told(choice["message"]) == expected
        assert choice["finish_reason"] == "stop"
        spelled = bytes(byte for token in choice["logprobs"]["content"][:-1] for byte in token["bytes"]).decode()
        assert spelled == "".join(SCRIPTS[opening[-1]][:-1])  # logprobs are those of all tokens, tags included
    assert answer["usage"]["completion_tokens"] == 2 * len(SCRIPTS[opening[-1]])


@pytest.mark.parametrize(("parser", "opening", "expected"), CASES)
@pytest.mark.parametrize("num_speculative_tokens", [0, 2])
async def test_a_stream_has_the_reasoning_first_and_never_a_tag(
    pairs: dict[str, RunningPair], parser: str, opening: str, expected: Answer, num_speculative_tokens: int
) -> None:
    body = chat_body(opening, n=2, num_speculative_tokens=num_speculative_tokens)
    found: list[list[str]] = [["", ""], ["", ""]]
    for chunk in await chunks_of(pairs[parser], body):
        for choice in chunk["choices"]:
            delta, text = choice["delta"], found[choice["index"]]
            assert delta.get("reasoning") == delta.get("reasoning_content")
            assert not (delta.get("reasoning") and text[1]), "reasoning after the answer has begun"
            text[0] += delta.get("reasoning") or ""
            text[1] += delta.get("content") or ""
    assert [(thought or None, content or None) for thought, content in found] == [expected] * 2


@pytest.mark.parametrize("structure", [{}, {"guided_choice": ["The answer"]}])
@pytest.mark.parametrize("extra", [{}, {"logprobs": True}, {"include_rounds": True}])
async def test_a_round_whose_text_is_uncertain_has_no_chunk(
    pairs: dict[str, RunningPair], structure: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Tags come letter by letter here. Each round has a chunk if logprobs or rounds are asked for."""
    body = chat_body("#", num_speculative_tokens=0, **structure)
    first, *chunks, last = await chunks_of(pairs["qwen3"], {**body, **extra})
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"
    said = [bool(chunk["choices"][0]["delta"]) for chunk in chunks]
    assert said and all(said) is not bool(extra), said
    plain = await chunks_of(pairs["qwen3"], body)
    assert texts_of([first, *chunks, last]) == texts_of(plain) and len(plain) <= len(chunks) + 2


def texts_of(chunks: list[dict[str, Any]]) -> list[str]:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content")]


async def test_an_output_that_is_cut_off_while_it_reasons_has_no_content(pairs: dict[str, RunningPair]) -> None:
    answer = await answer_of(pairs["qwen3"], chat_body("#", max_tokens=6))
    (choice,) = answer["choices"]
    assert (told(choice["message"]), choice["finish_reason"]) == (("Let me see.\n</think", None), "length")


async def test_stop_strings_hold_in_the_reasoning_too(pairs: dict[str, RunningPair]) -> None:
    for stop, expected in ((" see", ("Let me", None)), ("</think>", ("Let me see.\n", None)), ("answer", None)):
        message = (await answer_of(pairs["qwen3"], chat_body("#", stop=stop)))["choices"][0]["message"]
        assert told(message) == (expected or ("Let me see.", "The <think>"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<think>so\n", ("Hm, maybe", "Yes </think> indeed")),
        ("<think>so</think>\t", (None, "No tags here")),
        ("Good\n", (None, "Hm, maybe</think>\n\nYes </think> indeed")),
        ("Good#", (None, "".join(SCRIPTS["#"][:-1]))),
    ],
)
async def test_a_continued_message_says_by_itself_whether_it_reasons(
    pairs: dict[str, RunningPair], content: str, expected: Answer
) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
    for pair in pairs.values():
        body = chat_body("", messages=messages, continue_final_message=True)
        assert told((await answer_of(pair, body))["choices"][0]["message"]) == expected


async def test_calls_are_read_after_the_reasoning(pairs: dict[str, RunningPair]) -> None:
    body = chat_body("$", tools=[CLOCK], max_tokens=200)
    (choice,) = (await answer_of(pairs["qwen3"], body))["choices"]
    assert told(choice["message"]) == ("a<tool_call>?", "bNow:")
    ((call, *others), reason) = choice["message"]["tool_calls"], choice["finish_reason"]
    assert (call["function"], others, reason) == ({"name": "clock", "arguments": "{}"}, [], "tool_calls")
    deltas = [choice["delta"] for chunk in await chunks_of(pairs["qwen3"], body) for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "a<tool_call>?"
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call["arguments"] for call in calls) == "{}"


async def test_a_model_that_may_call_may_stop_while_it_reasons(pairs: dict[str, RunningPair]) -> None:
    answer = await answer_of(pairs["deepseek_r1"], chat_body("\t", tools=[CLOCK]))
    (choice,) = answer["choices"]
    assert (told(choice["message"]), choice["finish_reason"]) == (("No tags here", None), "stop")


async def test_a_required_call_comes_after_the_reasoning(pairs: dict[str, RunningPair]) -> None:
    body = chat_body("#", tools=[CLOCK], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    (choice,) = (await answer_of(pairs["qwen3"], body))["choices"]
    assert told(choice["message"]) == ("Let me see.", None)
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["clock"]


@pytest.mark.parametrize(
    ("parser", "opening", "expected"),
    [
        ("qwen3", "=", ("five", "5")),
        ("qwen3", "<think>\n", ("Hm, maybe", "5")),
        ("qwen3", "<think></think>\t", (None, "5")),
        ("deepseek_r1", "=", ("five", "5")),
        ("deepseek_r1", "\n", ("Hm, maybe", "5")),
    ],
)
@pytest.mark.parametrize(
    "structure",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 5}}}},
        {"guided_json": {"const": 5, "format": "path"}},
        {"guided_regex": "5"},
        {"guided_choice": ["5"]},
        {"guided_grammar": "start: TEXT\nTEXT: /5/"},
    ],
)
async def test_a_structured_output_is_that_of_the_answer(
    pairs: dict[str, RunningPair], parser: str, opening: str, expected: Answer, structure: dict[str, Any]
) -> None:
    (choice,) = (await answer_of(pairs[parser], chat_body(opening, **structure)))["choices"]
    assert (told(choice["message"]), choice["finish_reason"]) == (expected, "stop")


async def test_a_structure_is_refused_by_the_words_of_its_own(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", json=chat_body("#", guided_regex="("))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "guided_regex")
    plain = await client.post("/v1/completions", json={"prompt": "a", "guided_regex": "("})
    assert answer.json() == plain.json()


async def test_completions_are_left_as_they_are(client: httpx.AsyncClient) -> None:
    body = {"prompt": "a=", "temperature": 0, "max_tokens": 9, "n": 1}
    assert (await client.post("/v1/completions", json=body)).json()["choices"][0]["text"] == "<think>five</think>5"
    answer = await client.post("/v1/completions", json={**body, "guided_regex": "5"})
    assert answer.json()["choices"][0]["text"] == "5"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_the_template_gets_what_an_earlier_message_thought(client: httpx.AsyncClient, name: str) -> None:
    messages = [{"role": "assistant", "content": "b", name: "thought"}, {"role": "user", "content": "c"}]
    body = {"messages": messages, "chat_template_kwargs": {"opening": "d"}}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert (await client.post("/detokenize", json={"tokens": tokens})).json()["prompt"] == "thoughtbcd"
