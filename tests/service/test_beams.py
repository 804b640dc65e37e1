"""Beam search through the services is transformers' beam search, token for token, with and without a draft."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coordinator.outputs import beam_passes
from specpair.speculation.beams.beam_tree import BeamGroup, grouped
from specpair.v1 import coordinator_service_pb2 as pb
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation

ARCHITECTURES = ("llama", "gpt2", "qwen2")
EOS = 7
STOPS = [7, 9, 20, 25, 33, 37, 40, 48, 55, 61]
LENGTH = 20


def prompts(count: int) -> list[list[int]]:
    """Prompts of different lengths."""
    choice = random.Random(5)
    return [[choice.randrange(64) for _ in range(choice.randint(3, 12))] for _ in range(count)]


@torch.inference_mode()
def expected(model: Any, prompt: list[int], num_beams: int, *, n: int = 1, **options: Any) -> list[list[int]]:
    """What transformers gives, each output up to its end."""
    ids = torch.tensor([prompt])
    settings = {"eos_token_id": EOS, "pad_token_id": 0, "max_new_tokens": LENGTH, **options}
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=num_beams,
        num_return_sequences=n,
        do_sample=False,
        **settings,
    )
    outputs = found[:, len(prompt) :].tolist()
    return [output[: output.index(EOS) + 1] if EOS in output else output for output in outputs]


async def searched(
    pair: RunningPair, prompt: list[int], stops: list[int] | None = None, min_tokens: int = 0, **options: Any
) -> list[pb.GenerateTokensResponse]:
    """One message for each output, in order."""
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=prompt), **{"max_tokens": LENGTH, **options})
    request.sampling.stop_token_ids.extend(stops or [EOS])
    request.sampling.min_tokens = min_tokens
    return [response async for response in pair.coordinator.GenerateTokens(request)]


def tokens_of(responses: list[pb.GenerateTokensResponse]) -> list[list[int]]:
    assert [response.choice_index for response in responses] == list(range(len(responses)))
    return [[token.id for token in response.tokens] for response in responses]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    target = make_model(tmp_path_factory.mktemp("target"), request.param)
    return target, make_variation(tmp_path_factory.mktemp("draft"), target, spread=0.1)


@pytest.fixture
async def pair(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    target, draft = map(engine_config, folders)
    async with running_pair(target, draft, draft_timeout=60.0) as running:
        yield running


@pytest.mark.few_cases("llama")
async def test_equals_transformers(pair: RunningPair, folders: tuple[Path, Path]) -> None:
    model = load_plain(folders[0])
    for num_beams in (1, 2, 4):
        passes = dict.fromkeys((0, 2, 4), 0)
        for prompt in prompts(10):
            right = expected(model, prompt, num_beams)
            for count in passes:
                found = await searched(pair, prompt, num_beams=num_beams, num_speculative_tokens=count)
                assert tokens_of(found) == right, (num_beams, count, prompt)
                passes[count] += 1 + found[-1].summary.speculation.round_count
        assert passes[4] < passes[0], "the draft's candidates save passes"
    await pair.check_clean()


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first": ({"early_stopping": True}, {"early_stopping": pb.EARLY_STOPPING_FIRST}),
    "never": ({"early_stopping": "never"}, {"early_stopping": pb.EARLY_STOPPING_NEVER}),
    "long": ({"length_penalty": 2.0}, {"length_penalty": 2.0}),
    "short": ({"length_penalty": -0.5}, {"length_penalty": -0.5}),
    "no penalty": ({"length_penalty": 0.0, "early_stopping": "never"}, {"length_penalty": 0.0, "early_stopping": 3}),
    "several stops": ({"eos_token_id": STOPS}, {"stops": STOPS}),
    "least": ({"eos_token_id": STOPS, "min_new_tokens": 6}, {"stops": STOPS, "min_tokens": 6}),
}


@torch.inference_mode()
def best(model: Any, prompt: list[int], **options: Any) -> tuple[list[list[int]], list[float]]:
    """All beams of transformers' search with four beams, with their scores."""
    ids = torch.tensor([prompt])
    settings = {"eos_token_id": EOS, "pad_token_id": 0, "max_new_tokens": LENGTH, "num_beams": 4, **options}
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_return_sequences=4,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    ends = settings["eos_token_id"] if isinstance(settings["eos_token_id"], list) else [EOS]
    outputs = [ended(output, ends) for output in found.sequences[:, len(prompt) :].tolist()]
    return outputs, found.sequences_scores.tolist()


def ended(tokens: list[int], ends: list[int]) -> list[int]:
    """The tokens up to the first that ends them."""
    return tokens[: next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))]


@pytest.mark.parametrize("folders", ["llama"], indirect=True)
async def test_options(pair: RunningPair, folders: tuple[Path, Path]) -> None:
    """Length penalty, early stopping, stop tokens and min_tokens, the four best beams with their scores."""
    model = load_plain(folders[0])
    lengths: set[int] = set()
    for name, (theirs, ours) in OPTIONS.items():
        for prompt in prompts(3):
            right, scores = best(model, prompt, **theirs)
            for count in (0, 4):
                found = await searched(pair, prompt, num_beams=4, n=4, num_speculative_tokens=count, **ours)
                assert tokens_of(found) == right, (name, count, prompt)
                assert [response.summary.beam_score for response in found] == pytest.approx(scores, rel=1e-4)
            lengths.update(map(len, right))
    assert len(lengths) > 4, "stop tokens end outputs at many places"
    await pair.check_clean()


@pytest.mark.parametrize("folders", ["llama"], indirect=True)
@pytest.mark.parametrize("most", [0, 6])
async def test_small_trees(
    pair: RunningPair, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Beams whose branches do not fit into one tree are scored by several calls."""
    model = load_plain(folders[0])

    def into_small(beams: Any, room: int) -> list[BeamGroup]:
        return grouped(beams, room, most)

    monkeypatch.setattr(beam_passes, "grouped", into_small)
    for prompt in prompts(3):
        found = await searched(pair, prompt, num_beams=4, num_speculative_tokens=2)
        assert tokens_of(found) == expected(model, prompt, 4)
    await pair.check_clean()


@pytest.mark.parametrize("folders", ["llama"], indirect=True)
async def test_to_the_end_of_the_model(pair: RunningPair, folders: tuple[Path, Path]) -> None:
    """Where the model's length ends there is no room for candidates, nor for trees of long branches."""
    model = load_plain(folders[0])
    prompt = [number % 64 for number in range(100)]
    found = await searched(pair, prompt, num_beams=4, max_tokens=1000)
    assert tokens_of(found) == expected(model, prompt, 4, max_new_tokens=28)
    assert found[0].summary.completion_token_count == 28
    await pair.check_clean()
