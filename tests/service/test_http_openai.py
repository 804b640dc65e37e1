"""The HTTP front end by OpenAI's own client, over the real services of the bundled pair."""

import math
import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from specpair.v1 import coordinator_service_pb2 as pb
from tests.http_service import openai_client, running_bundled_pair
from tests.services import RunningPair

MODEL = "target"
PROMPT = "def read_lines(path):\n"
SEED = 7


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair() as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module")
async def client(pair: RunningPair) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(pair) as client:
        yield client


async def over_grpc(pair: RunningPair, max_tokens: int, seed: int = SEED, **fields: Any) -> list[pb.GeneratedToken]:
    request = pb.GenerateTokensRequest(text=PROMPT, max_tokens=max_tokens, sampling={"seed": seed}, **fields)  # type: ignore[arg-type]
    return [token async for response in pair.coordinator.GenerateTokens(request) for token in response.tokens]


async def test_completion_is_what_grpc_gives_for_the_seed(pair: RunningPair, client: AsyncOpenAI) -> None:
    tokens = await over_grpc(pair, 24)
    completion = await client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=24, seed=SEED, extra_body={"include_rounds": True}
    )
    (choice,) = completion.choices
    rounds = choice.model_extra["specpair"]["rounds"]  # type: ignore[index]
    assert [token["id"] for entry in rounds for token in entry["tokens"]] == [token.id for token in tokens]
    assert choice.text == "".join(token.text for token in tokens)
    assert (choice.finish_reason, choice.model_extra["seed"]) == ("length", SEED)  # type: ignore[index]
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + 24
    measured = completion.model_extra["metrics"]["speculative_decoding"]  # type: ignore[index]
    assert measured["num_draft_tokens"] > 0
    assert sum(measured["num_accepted_tokens_per_pos"]) == measured["num_accepted_tokens"]


async def test_stream_is_the_completion_in_pieces(client: AsyncOpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 24, "seed": SEED, "n": 2}
    whole = await client.completions.create(**options)
    stream = await client.completions.create(**options, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    for index, expected in enumerate(whole.choices):
        pieces = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(piece.text for piece in pieces) == expected.text
        assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [expected.finish_reason]
    assert chunks[-1].choices == []
    assert whole.usage is not None and chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    counts = [document.model_extra["metrics"]["speculative_decoding"] for document in (whole, chunks[-1])]  # type: ignore[index]
    assert counts[0]["num_draft_tokens"] == counts[1]["num_draft_tokens"] > 0


async def test_finish_chunk_has_the_numbers_of_its_output(client: AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=9, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].model_extra["metrics"]["speculative_decoding"]["rule"] == "block"  # type: ignore[index]
    assert not any("metrics" in (chunk.model_extra or {}) for chunk in chunks[:-1])


async def test_several_prompts_of_every_kind(pair: RunningPair, client: AsyncOpenAI) -> None:
    """Outputs come prompt by prompt, each what it would be alone."""
    ids = [[5, 9, 2], [300, 17]]
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "seed": SEED, "n": 2}
    together = await client.completions.create(prompt=ids, **options)
    alone = [choice for prompt in ids for choice in (await client.completions.create(prompt=prompt, **options)).choices]
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in together.choices] == [choice.text for choice in alone]
    assert together.usage is not None and together.usage.prompt_tokens == 5
    texts = await client.completions.create(prompt=[PROMPT, "import os"], **options)
    assert texts.choices[0].text == (await client.completions.create(prompt=PROMPT, **options)).choices[0].text


async def test_chat(client: AsyncOpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "seed": SEED, "max_completion_tokens": 8}
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": " there"}]},
    ]
    whole = await client.chat.completions.create(messages=messages, **options)
    plain: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]
    assert (await client.chat.completions.create(messages=plain, **options)).choices[0].message == whole.choices[
        0
    ].message
    assert whole.usage is not None and whole.usage.completion_tokens == 8
    stream = await client.chat.completions.create(messages=messages, **options, stream=True)
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_logprobs_of_completions(pair: RunningPair, client: AsyncOpenAI) -> None:
    tokens = await over_grpc(pair, 12, logprobs=2)
    completion = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, seed=SEED, logprobs=2)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None and logprobs.text_offset is not None
    assert logprobs.tokens == [token.text for token in tokens]
    assert logprobs.token_logprobs == pytest.approx([token.logprobs.logprob for token in tokens])
    assert logprobs.top_logprobs is not None and logprobs.token_logprobs is not None
    assert {len(top) for top in logprobs.top_logprobs} <= {2, 3}
    for top, token, logprob in zip(logprobs.top_logprobs, logprobs.tokens, logprobs.token_logprobs, strict=True):
        assert top[token] == logprob, "the drawn token is among them"
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert completion.choices[0].text.startswith(token, offset)


async def test_echo_scores_the_prompt(client: AsyncOpenAI) -> None:
    """As evaluation harnesses ask: how likely is this text?"""
    completion = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0, echo=True, logprobs=1)
    (choice,) = completion.choices
    assert choice.text == PROMPT
    assert (
        choice.logprobs is not None
        and choice.logprobs.token_logprobs is not None
        and choice.logprobs.tokens is not None
    )
    assert "".join(choice.logprobs.tokens) == PROMPT
    assert choice.logprobs.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in choice.logprobs.token_logprobs[1:])
    assert choice.logprobs.top_logprobs is not None and choice.logprobs.top_logprobs[0] is None
    told = zip(choice.logprobs.top_logprobs, choice.logprobs.tokens, choice.logprobs.token_logprobs, strict=True)
    assert all(top[token] == logprob for top, token, logprob in list(told)[1:])
    stream = await client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=4, echo=True, logprobs=1, stream=True, seed=SEED
    )
    pieces = [chunk.choices[0] async for chunk in stream]
    assert "".join(piece.text for piece in pieces).startswith(PROMPT)
    named = [token for piece in pieces if piece.logprobs for token in piece.logprobs.tokens or []]
    offsets = [offset for piece in pieces if piece.logprobs for offset in piece.logprobs.text_offset or []]
    assert len(named) == len(choice.logprobs.tokens) + 4
    assert offsets == [sum(map(len, named[:i])) for i in range(len(named))]


async def test_logprobs_of_chat(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "x"}],
        max_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=3,
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and len(logprobs.content) == 6
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == entry.top_logprobs[0].logprob, "greedy takes the likeliest"
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) < 1.001


async def test_stop_and_logit_bias(client: AsyncOpenAI) -> None:
    free = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=40, temperature=0)
    stop = free.choices[0].text[5:9]
    stopped = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=40, temperature=0, stop=[stop])
    assert stopped.choices[0].text == free.choices[0].text[: free.choices[0].text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    biased = await client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=5, temperature=0, logit_bias={"199": 100}
    )
    assert biased.choices[0].text == "\n" * 5


async def test_allowed_and_banned_tokens(client: AsyncOpenAI) -> None:
    """Only what is allowed is drawn, and of that not what is banned."""
    newline, vertical_tab = 199, 200
    completion = await client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        max_tokens=5,
        extra_body={"allowed_token_ids": [newline, vertical_tab], "banned_token_ids": [newline]},
    )
    assert completion.choices[0].text == "\x0b" * 5


async def test_negative_seeds_repeat(client: AsyncOpenAI) -> None:
    texts = [
        (await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, seed=seed)).choices[0].text
        for seed in (-5, -5, -6)
    ]
    assert texts[0] == texts[1] != texts[2]


async def test_extensions(client: AsyncOpenAI) -> None:
    """vLLM's and our own, beside a parameter that nobody knows."""
    completion = await client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        max_tokens=12,
        extra_body={
            "top_k": -1,
            "min_p": 0.01,
            "repetition_penalty": 1.1,
            "min_tokens": 12,
            "ignore_eos": True,
            "stop_token_ids": [0],
            "prompt_logprobs": 1,
            "num_speculative_tokens": 2,
            "rule": "coupled",
            "drafter": "ngram",
            "work_ahead": "on",
            "never_heard_of": {"deep": [1]},
        },
    )
    measured = completion.model_extra["metrics"]["speculative_decoding"]  # type: ignore[index]
    assert (measured["rule"], measured["drafter"], measured["adaptive"]) == ("coupled", "ngram", False)
    scored = completion.choices[0].model_extra["prompt_logprobs"]  # type: ignore[index]
    assert scored[0] is None and all(entry["logprob"] < 0 for position in scored[1:] for entry in position.values())


async def test_models(pair: RunningPair, client: AsyncOpenAI) -> None:
    models = [model async for model in client.models.list()]
    assert [model.id for model in models] == [MODEL]
    retrieved = await client.models.retrieve(MODEL)
    assert retrieved.id == MODEL and 0 <= time.time() - retrieved.created < 3600
    limits, longest = retrieved.model_extra or {}, pair.target.host.info().max_model_len
    assert (limits["max_num_speculative_tokens"], limits["max_model_len"]) == (16, longest)
    with pytest.raises(openai.NotFoundError) as caught:
        await client.completions.create(model="gpt-4", prompt=PROMPT)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


async def test_the_model_has_the_names_that_the_coordinator_was_given() -> None:
    names = ("gpt-4", "team/code")
    async with running_bundled_pair(served_model_names=names) as pair, openai_client(pair) as client:
        assert [model.id async for model in client.models.list()] == [*names]
        for name in (*names, MODEL):
            completion = await client.completions.create(model=name, prompt=PROMPT, max_tokens=2)
            assert completion.model == "gpt-4"
            assert (await client.models.retrieve(name)).id == ("gpt-4" if name == MODEL else name)
        with pytest.raises(openai.NotFoundError, match="'gpt-4' or 'team/code' is served"):
            await client.completions.create(model="gpt-3", prompt=PROMPT)
        with pytest.raises(openai.NotFoundError, match="'gpt-4' or 'team/code' is served"):
            await client.models.retrieve("team")


@pytest.mark.parametrize(
    ("changes", "parameter", "words"),
    [
        ({"temperature": -1}, "temperature", "between 0.0 and 100.0"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"n": 33}, "n", "between 1 and 32"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"stop": [""]}, "stop", "between 1 and 256"),
        ({"logprobs": 21}, "logprobs", "between 0 and 20"),
        ({"max_tokens": 0}, "max_tokens", "between 1"),
        ({"prompt": [999999]}, "prompt", "ids are below"),
        ({"prompt": ["x"] * 300}, "prompt", "at most"),
        ({"prompt": [PROMPT] * 128, "n": 3}, "prompt", "at most 64 outputs"),
        ({"prompt": {"text": PROMPT}}, "prompt", "must be a text"),
        ({"prompt": PROMPT, "suffix": "end"}, "suffix", "not supported"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "not a token id"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "between -100"),
        ({"extra_body": {"allowed_token_ids": []}}, "allowed_token_ids", "at least 1"),
        ({"extra_body": {"banned_token_ids": [5] * 16385}}, "banned_token_ids", "at most 16384"),
        ({"extra_body": {"stop_token_ids": [5] * 65}}, "stop_token_ids", "at most 64"),
        ({"extra_body": {"drafts": ["a"] * 9}}, "drafts", "at most 8"),
        ({"extra_body": {"rule": "guess"}}, "rule", "block"),
        ({"extra_body": {"num_speculative_tokens": 17}}, "num_speculative_tokens", "between 0 and 16"),
        ({"extra_body": {"lenience": 0.5, "rule": "block"}}, "lenience", "requires the token rule"),
    ],
)
async def test_errors_name_the_parameter(client: AsyncOpenAI, changes: Any, parameter: str, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await client.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 4, **changes})
    assert caught.value.param == parameter
    assert caught.value.type == "invalid_request_error"
    if "at most" in words:
        assert caught.value.code == "invalid_value"


async def test_long_prompts_are_named_as_openai_does(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=MODEL, prompt=[5] * 5000)
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ],
)
async def test_errors_of_chat_name_the_parameter(client: AsyncOpenAI, changes: Any, parameter: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**{"model": MODEL, "messages": messages, "max_tokens": 4, **changes})
    assert caught.value.param == parameter
