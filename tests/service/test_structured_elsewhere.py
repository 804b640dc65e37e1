"""Structured outputs of targets with an encoder, of targets on several ranks, and beside a draft that translates."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from draft_service.config import DraftConfig
from specpair.client import channel as client
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1 import structured_output_pb2 as so
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_encoder_decoders import make_encoder_decoder
from tests.tiny_tokenizers import byte_level, make_speaking_model
from tests.worded_models import END, TEXTS, make_worded_model, worded_tokenizer

pytestmark = pytest.mark.timeout(300)

REGEX = "([ab]cdcdab){2,4}"
SHAPE = {"num_hidden_layers": 2, "initializer_range": 0.35}
OTHER = byte_level(["c", "ca", "a", "ab", "b", "d"], [["c", "a"], ["a", "b"]])
"""The draft's tokenizer: the target's letters in other tokens."""


@asynccontextmanager
async def with_encoders(folder: Path) -> AsyncIterator[RunningPair]:
    sides = [folder / "target", folder / "draft"]
    for seed, side in enumerate(sides):
        make_encoder_decoder(side, "t5", seed=seed, vocab_size=len(TEXTS), eos_token_id=0)
        PreTrainedTokenizerFast(tokenizer_object=worded_tokenizer(), eos_token=END).save_pretrained(side)
    async with running_pair(*map(engine_config, sides), draft_timeout=60.0) as pair:
        yield pair


@asynccontextmanager
async def on_two_ranks(folder: Path) -> AsyncIterator[RunningPair]:
    sides = [make_worded_model(folder / str(seed), seed=seed, **SHAPE) for seed in (7, 8)]
    target = engine_config(sides[0], tensor_parallel_size=2, threads=1, num_blocks=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "PING_TIMEOUT_MS", 30_000)  # a busy machine may stop this process for a second
        async with running_pair(target, engine_config(sides[1]), draft_timeout=60.0) as pair:
            yield pair


@asynccontextmanager
async def with_another_vocabulary(folder: Path) -> AsyncIterator[RunningPair]:
    target = make_worded_model(folder / "target", seed=7, **SHAPE)
    draft = make_speaking_model(folder / "draft", OTHER, seed=8, vocab_size=6, **SHAPE)
    async with running_pair(
        engine_config(target), DraftConfig(engine=engine_config(draft)), draft_timeout=60.0
    ) as pair:
        yield pair


@pytest.mark.parametrize("make", [with_encoders, on_two_ranks, with_another_vocabulary])
async def test_outputs_fit_and_do_not_depend_on_k(make: Any, tmp_path: Path) -> None:
    is_encoding = make is with_encoders
    asked: dict[str, Any] = {"encoder_token_ids": {"ids": [5, 6, 7]}} if is_encoding else {"token_ids": {"ids": [1, 2]}}
    async with make(tmp_path) as pair:
        for options in ({"temperature": 0.0}, {"seed": 3}):
            found: list[str] = []
            for count in (0, 3):
                request = pb.GenerateTokensRequest(
                    **{**asked, "sampling": options},
                    max_tokens=40,
                    num_speculative_tokens=count,
                    structured_output=so.StructuredOutput(regex=REGEX),
                    rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
                )
                responses = [response async for response in pair.coordinator.GenerateTokens(request)]
                speculation = responses[-1].summary.speculation
                assert speculation.forced_token_count > 5
                assert bool(speculation.draft_token_count) == bool(count)
                found.append("".join(response.text for response in responses))
            assert re.fullmatch(REGEX, found[0]), found
            assert found[0] == found[1]
        await pair.check_clean()
