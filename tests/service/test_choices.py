"""Several outputs of one request, and the logprobs of its tokens, through the real services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import torch

from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.logprobs_pb2 import TokenLogprobs
from tests.services import RunningModel, RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

VOCABULARY = 24
PROMPT = [5, 2, 7, 2, 11, 3, 1, 9, 23, 14, 4, 4, 8]
SEED = 2**64 - 2
"""The seeds of later outputs begin again at 0."""


@dataclass(frozen=True)
class Folders:
    target: Path
    draft: Path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A draft that is often, but not always, right."""
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=VOCABULARY, initializer_range=0.25)
    draft = make_model(folder / "draft", seed=1, vocab_size=VOCABULARY, initializer_range=0.25, num_hidden_layers=2)
    return Folders(target, draft)


@asynccontextmanager
async def serving(folders: Folders, cache: str = "contiguous", **options: Any) -> AsyncIterator[RunningPair]:
    target, draft = (engine_config(folder, cache=cache) for folder in (folders.target, folders.draft))
    async with running_pair(target, draft, **options) as pair:
        yield pair


@pytest.fixture(scope="module")
async def pair(folders: Folders) -> AsyncIterator[RunningPair]:
    async with serving(folders) as pair:
        yield pair


@dataclass
class Choice:
    """One output as a client gets it."""

    tokens: list[pb.GeneratedToken] = field(default_factory=list)
    summary: pb.GenerationSummary | None = None

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


def message(max_tokens: int = 12, count: int = 3, seed: int = SEED, **fields: Any) -> pb.GenerateTokensRequest:
    return pb.GenerateTokensRequest(
        token_ids={"ids": PROMPT},
        max_tokens=max_tokens,
        num_speculative_tokens=count,
        sampling={"seed": seed, "temperature": 1.1},
        **fields,
    )


async def run(pair: RunningPair, request: pb.GenerateTokensRequest) -> list[Choice]:
    choices: dict[int, Choice] = {}
    async for response in pair.coordinator.GenerateTokens(request):
        choice = choices.setdefault(response.choice_index, Choice())
        assert choice.summary is None, "a message behind the last"
        choice.tokens.extend(response.tokens)
        choice.summary = response.summary if response.HasField("summary") else None
    assert all(choice.summary is not None for choice in choices.values())
    return [choices[index] for index in range(len(choices))]


def seed_of(index: int) -> int:
    return (SEED + index) % 2**64


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize("count", [0, 3])
async def test_each_output_is_what_its_seed_gives_alone(folders: Folders, cache: str, count: int) -> None:
    async with serving(folders, cache) as pair:
        alone = [(await run(pair, message(count=count, seed=seed_of(i))))[0] for i in range(4)]
        together = await run(pair, message(count=count, n=4))
        assert [choice.ids for choice in together] == [choice.ids for choice in alone]
        assert len({tuple(choice.ids) for choice in together}) == 4
        assert [choice.summary.seed for choice in together if choice.summary] == [seed_of(i) for i in range(4)]
        await pair.check_clean()


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_the_prompt_is_fed_once_for_all_outputs(folders: Folders, cache: str) -> None:
    async with serving(folders, cache) as pair:
        assert pair.draft is not None
        target, draft = fed_tokens(pair.target), fed_tokens(pair.draft)
        await run(pair, message(max_tokens=6, count=3, n=4))
        await pair.check_clean()
    for fed in (target, draft):
        assert [length for length in fed if length >= len(PROMPT)] == [len(PROMPT)], fed


def fed_tokens(model: RunningModel) -> list[int]:
    """Grows by the length of each piece that the model is fed for one sequence."""
    lengths: list[int] = []
    runner = model.host.engine._turns.runner
    forward = runner.forward

    def counted(batch: Any) -> Any:
        lengths.extend(segment.token_count for segment in batch.segments)
        return forward(batch)

    runner.forward = counted  # type: ignore[method-assign]
    return lengths


async def test_the_best_outputs_are_those_with_the_highest_mean_logprob(pair: RunningPair) -> None:
    def mean(choice: Choice) -> float:
        return sum(token.logprobs.logprob for token in choice.tokens) / len(choice.tokens)

    every = await run(pair, message(n=6, logprobs=0))
    best = await run(pair, message(n=2, best_of=6))
    expected = sorted(every, key=mean, reverse=True)[:2]
    assert [choice.ids for choice in best] == [choice.ids for choice in expected]
    assert not any(token.HasField("logprobs") for choice in best for token in choice.tokens)
    for choice, same in zip(best, expected, strict=True):
        assert choice.summary is not None
        assert choice.summary.cumulative_logprob == pytest.approx(mean(same) * len(same.tokens))
    await pair.check_clean()


@pytest.mark.parametrize("rule", ["TOKEN", "BLOCK", "COUPLED"])
async def test_logprobs_are_the_models_own_whatever_the_sampling(
    pair: RunningPair, folders: Folders, rule: str
) -> None:
    request = message(max_tokens=40, count=2, n=2, logprobs=3, rule=f"ACCEPTANCE_RULE_{rule}")
    request.sampling.temperature = 0.8
    request.sampling.logit_bias[3] = 2.0
    request.sampling.repetition_penalty = 1.2
    choices = await run(pair, request)
    model = load_plain(folders.target)
    for choice in choices:
        expected = log_softmax(model, [*PROMPT, *choice.ids])[len(PROMPT) - 1 :]
        for token, row in zip(choice.tokens, expected, strict=False):
            check_entry(token.logprobs, token.id, row, 3)
        assert choice.summary is not None
        assert choice.summary.cumulative_logprob == pytest.approx(sum(t.logprobs.logprob for t in choice.tokens))
    origins = {token.origin for choice in choices for token in choice.tokens}
    assert origins == {
        pb.TOKEN_ORIGIN_TARGET,
        pb.TOKEN_ORIGIN_ACCEPTED,
        pb.TOKEN_ORIGIN_CORRECTION,
        pb.TOKEN_ORIGIN_BONUS,
    }, "not every kind of token was seen"


@pytest.mark.parametrize("max_tokens", [0, 4])
async def test_the_prompt_comes_with_its_logprobs_in_the_first_message_alone(
    pair: RunningPair, folders: Folders, max_tokens: int
) -> None:
    request = message(max_tokens=max_tokens, n=2, prompt_logprobs=2, echo=True)
    responses = [response async for response in pair.coordinator.GenerateTokens(request)]
    prompt = responses[0].prompt_tokens
    assert [token.id for token in prompt] == PROMPT
    assert {token.origin for token in prompt} == {pb.TOKEN_ORIGIN_PROMPT}
    assert not prompt[0].HasField("logprobs")
    for token, row in zip(prompt[1:], log_softmax(load_plain(folders.target), PROMPT), strict=False):
        check_entry(token.logprobs, token.id, row, 2)
    assert not any(response.prompt_tokens for response in responses[1:])
    last = [response.summary for response in responses if response.HasField("summary")]
    assert [summary.completion_token_count for summary in last] == [max_tokens] * 2
    if max_tokens == 0:
        assert len(responses) == 3
        assert {summary.finish_reason for summary in last} == {pb.FINISH_REASON_LENGTH}
        assert {summary.speculation.round_count for summary in last} == {0}
    await pair.check_clean()


@torch.inference_mode()
def log_softmax(model: Any, token_ids: list[int]) -> torch.Tensor:
    """Row i is the distribution behind token i."""
    return model(torch.tensor([token_ids])).logits[0].log_softmax(-1)


def check_entry(entry: TokenLogprobs, token_id: int, row: torch.Tensor, top_count: int) -> None:
    assert entry.logprob == pytest.approx(row[token_id].item(), abs=1e-4)
    top = row.topk(top_count)
    assert list(entry.top_token_ids) == top.indices.tolist()
    assert list(entry.top_logprobs) == pytest.approx(top.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("best_of", [4, 5])
async def test_a_client_that_goes_away_leaves_nothing_behind(pair: RunningPair, best_of: int) -> None:
    call = pair.coordinator.GenerateTokens(message(max_tokens=110, n=4, best_of=best_of))
    if best_of == 4:
        for _ in range(6):
            assert await call.read()
    else:
        async with asyncio.timeout(60):
            while len(pair.target.host.sequences) < best_of:
                await asyncio.sleep(0.002)
    assert len(pair.target.host.sequences) > 1
    call.cancel()
    await pair.check_clean()


async def test_outputs_that_the_target_has_no_place_for_are_refused_before_any_work(folders: Folders) -> None:
    target = engine_config(folders.target, max_num_seqs=4)
    async with running_pair(target, engine_config(folders.draft), max_queued_requests=0) as pair:
        alone = await run(pair, message(n=4))
        both = await asyncio.gather(run(pair, message(n=4)), run(pair, message(n=3)), return_exceptions=True)
        first, second = both
        assert isinstance(first, list) and [choice.ids for choice in first] == [choice.ids for choice in alone]
        assert isinstance(second, grpc.aio.AioRpcError)
        assert second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "needs 3 of 4 places" in (second.details() or "")
        await pair.check_clean()
