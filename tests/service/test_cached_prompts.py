"""How many tokens of a prompt the target had in its cache, and so did not read."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from specpair.errors import CapacityExhaustedError
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sequence_service_pb2 as sequences_pb
from specpair.v1 import target_service_pb2 as target_pb
from tests.http_service import BUNDLED, http_client
from tests.services import RunningPair, engine_config, running_pair

BLOCK = 16
LENGTH = 40
"""Of each prompt: two and a half blocks."""
AGAIN = {"contiguous": LENGTH - 1, "paged": 2 * BLOCK}
"""Cached tokens of a prompt that was read before. A slab keeps every token, but the last one is fed again for its
logits; a paged cache keeps whole blocks."""
COUNTERS = ("specpair_prompt_tokens_total", "specpair_cached_prompt_tokens_total")


@pytest.fixture(scope="module", params=AGAIN)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[RunningPair]:
    target = engine_config(BUNDLED / "target", block_size=BLOCK, cache=request.param)
    draft = engine_config(BUNDLED / "draft", block_size=BLOCK)
    async with running_pair(target, draft, num_speculative_tokens=3) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture
async def client(pair: RunningPair) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(pair) as client:
        yield client


@pytest.fixture
def again(pair: RunningPair) -> int:
    return AGAIN[pair.target.host.info().cache]


def prompt(number: int, shared: int = LENGTH) -> list[int]:
    """A prompt that has its first `shared` tokens in common with others of this number, and the rest with none."""
    return [1000 + number] * shared + [2000 + number] * (LENGTH - shared)


async def complete(pair: RunningPair, client: httpx.AsyncClient, path: str = "completions", **body: Any) -> Any:
    """The usage of an answer. All that it read is kept when this returns."""
    answer = await client.post(f"/v1/{path}", json={"max_tokens": 8, "seed": 1, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    await pair.check_clean()
    return answer.json()["usage"]


def usage(prompt_tokens: int, cached: int, completion_tokens: int = 8) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def counted(pair: RunningPair) -> list[float]:
    return [pair.front_end.registry.get_sample_value(name) or 0.0 for name in COUNTERS]


async def test_a_prompt_is_read_once(pair: RunningPair, client: httpx.AsyncClient, again: int) -> None:
    before = counted(pair)
    assert await complete(pair, client, prompt=prompt(1)) == usage(LENGTH, 0)
    assert await complete(pair, client, prompt=prompt(1)) == usage(LENGTH, again)
    whole_blocks = BLOCK if again % BLOCK == 0 else 24
    assert await complete(pair, client, prompt=prompt(1, shared=24)) == usage(LENGTH, whole_blocks)
    added = [now - old for now, old in zip(counted(pair), before, strict=True)]
    assert added == [3 * LENGTH, again + whole_blocks]


async def test_a_prompt_counts_once_for_all_its_outputs(
    pair: RunningPair, client: httpx.AsyncClient, again: int
) -> None:
    assert await complete(pair, client, prompt=prompt(2), n=2) == usage(LENGTH, 0, 16)
    before = counted(pair)
    assert await complete(pair, client, prompt=prompt(2), n=2) == usage(LENGTH, again, 16)
    assert await complete(pair, client, prompt=prompt(2), best_of=3) == usage(LENGTH, again, 24)
    assert await complete(pair, client, prompt=prompt(2), num_beams=2) == usage(LENGTH, again)
    assert [now - old for now, old in zip(counted(pair), before, strict=True)] == [3 * LENGTH, 3 * again]
    assert await complete(pair, client, prompt=[prompt(2), prompt(3)]) == usage(2 * LENGTH, again, 16)


async def test_every_output_says_what_its_prompt_had(pair: RunningPair, client: httpx.AsyncClient, again: int) -> None:
    await complete(pair, client, prompt=prompt(4))
    asked = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=prompt(4)), max_tokens=8, n=2)
    summaries = [
        answer.summary async for answer in pair.coordinator.GenerateTokens(asked) if answer.HasField("summary")
    ]
    assert [summary.cached_prompt_token_count for summary in summaries] == [again] * 2


async def test_chats_and_the_last_chunk_of_streams_say_it(
    pair: RunningPair, client: httpx.AsyncClient, again: int
) -> None:
    messages = [{"role": "user", "content": "Read each line of the file, and print it. " * 4}]
    length = (await complete(pair, client, "chat/completions", messages=messages))["prompt_tokens"]
    cached = length - 1 if again % BLOCK else (length - 1) // BLOCK * BLOCK
    assert await complete(pair, client, "chat/completions", messages=messages) == usage(length, cached)
    assert await last_usage(client, "chat/completions", messages=messages) == usage(length, cached)
    await complete(pair, client, prompt=prompt(5))
    assert await last_usage(client, "completions", prompt=prompt(5)) == usage(LENGTH, again)


async def last_usage(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    """The usage in the last chunk of a stream."""
    stream = {"max_tokens": 8, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    answer = await client.post(f"/v1/{path}", json={**stream, **body})
    chunks = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert chunks[-1] == "[DONE]"
    return json.loads(chunks[-2])["usage"]


async def test_a_prompt_that_was_scored_was_read(pair: RunningPair, client: httpx.AsyncClient, again: int) -> None:
    """The request itself has put it into the cache just before; without a token to generate nothing is opened."""
    scored: dict[str, Any]
    for scored in ({"prompt_logprobs": 0}, {"echo": True, "logprobs": 0}, {"prompt_logprobs": 0, "num_beams": 2}):
        assert (await complete(pair, client, prompt=prompt(6), **scored))["prompt_tokens_details"] == {
            "cached_tokens": 0
        }
    assert await complete(pair, client, prompt=prompt(6), echo=True) == usage(LENGTH, again)
    assert await complete(pair, client, prompt=prompt(6), echo=True, max_tokens=0) == usage(LENGTH, 0, 0)


async def test_resumed_tokens_are_none_of_the_prompt(pair: RunningPair, again: int) -> None:
    """The cache has the prompt with them whole, so all of the prompt."""
    options = {"seed": 7, "ignore_eos": True, "num_speculative_tokens": 0}
    whole = await pair.generate(prompt(7), 30, **options)
    await pair.check_clean()
    rest = await pair.generate(prompt(7), 30, resumed_token_ids=whole.token_ids[:20], **options)
    assert (whole.summary.cached_prompt_token_count, rest.summary.cached_prompt_token_count) == (0, LENGTH)


async def test_an_output_that_could_not_be_forked_does_not_count_again(
    pair: RunningPair, client: httpx.AsyncClient, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens a sequence of its own, for which the cache has the prompt as well."""

    async def refuse(*_: Any) -> int:
        raise CapacityExhaustedError("no fork today")

    await complete(pair, client, prompt=prompt(9))
    before = counted(pair)
    monkeypatch.setattr(pair.target.host, "fork", refuse)
    assert await complete(pair, client, prompt=prompt(9), n=2) == usage(LENGTH, again, 16)
    assert [now - old for now, old in zip(counted(pair), before, strict=True)] == [LENGTH, again]


async def test_all_verdicts_of_a_sequence_say_it_but_none_of_a_fork(pair: RunningPair, again: int) -> None:
    said = [await verdicts_say(pair, name) for name in ("first", "second")]
    assert said == [[0, 0, 0], [again, again, 0]]


async def verdicts_say(pair: RunningPair, name: str) -> list[int]:
    """Cached tokens by two verdicts of a sequence at the target, and by one of its fork."""
    target, ids, said = pair.target, (name, f"fork of {name}"), list[int]()
    opening = sequences_pb.OpenSequenceRequest(sequence_id=name, token_ids=prompt(8), sampling={"seed": 1})  # type: ignore[arg-type]
    await target.sequences.OpenSequence(opening)
    for step, index in ((0, 0), (1, 0), (2, 1)):
        if index:
            await target.sequences.ForkSequence(
                sequences_pb.ForkSequenceRequest(sequence_id=name, forked_sequence_id=ids[1])
            )
        call = target_pb.VerifyProposalRequest(sequence_id=ids[index], step=step, base_length=LENGTH + step)
        said.append((await target.hot.VerifyProposal(call)).cached_token_count)
    for each in ids:
        await target.sequences.CloseSequence(sequences_pb.CloseSequenceRequest(sequence_id=each))
    await pair.check_clean()
    return said
