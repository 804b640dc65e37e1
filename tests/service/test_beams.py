"""Beam search through the services is transformers' beam search, token for token, with and without a draft."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from specpair.v1 import coordinator_service_pb2 as pb
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation

ARCHITECTURES = ("llama", "gpt2", "qwen2")
EOS = 7
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


async def searched(pair: RunningPair, prompt: list[int], **options: Any) -> list[pb.GenerateTokensResponse]:
    """One message for each output, in order."""
    request = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=prompt), **{"max_tokens": LENGTH, **options})
    request.sampling.stop_token_ids.append(EOS)
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
    async with running_pair(target, draft) as running:
        yield running


async def test_equals_transformers(pair: RunningPair, folders: tuple[Path, Path]) -> None:
    model = load_plain(folders[0])
    for num_beams in (1, 2, 4):
        for prompt in prompts(10):
            right = expected(model, prompt, num_beams)
            for count in (0, 2, 4):
                found = await searched(pair, prompt, num_beams=num_beams, num_speculative_tokens=count)
                assert tokens_of(found) == right, (num_beams, count, prompt)
    await pair.check_clean()
