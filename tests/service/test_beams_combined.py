"""Beam search with encoder-decoder models and with drafts of every kind: exact, or refused by name."""

from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from draft_service.config import DraftConfig
from specpair.options import Drafter, Merge, OwnDraft
from specpair.v1 import beams_pb2, sequence_service_pb2
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import draft_service_pb2 as draft_pb
from tests import tiny_encoder_decoders as encoders
from tests.rpc_errors import refused
from tests.service import distributions as distribution
from tests.service.test_beams import EOS, ended, expected, prompts, searched, tokens_of
from tests.service.test_vocabularies import TARGET, translated_pair
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation
from tests.tiny_tokenizers import make_speaking_model

READ = ([5, 9, 3, 17, 22, 8, 41], [11, 2, 30])
LENGTH = 16


@torch.inference_mode()
def best_of_encoder(model: Any, read: list[int], num_beams: int) -> list[list[int]]:
    """All beams of transformers' search."""
    ids = torch.tensor([read])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=num_beams,
        num_return_sequences=num_beams,
        max_new_tokens=LENGTH,
        do_sample=False,
        eos_token_id=EOS,
    )
    return [ended(output, [EOS]) for output in found[:, 1:].tolist()]


async def searched_by_encoder(pair: RunningPair, read: list[int], **options: Any) -> list[pb.GenerateTokensResponse]:
    request = pb.GenerateTokensRequest(encoder_token_ids=pb.TokenIds(ids=read), max_tokens=LENGTH, **options)
    request.sampling.stop_token_ids.append(EOS)
    return [response async for response in pair.coordinator.GenerateTokens(request)]


@pytest.mark.parametrize("kind", ["t5", "bart"])
@pytest.mark.parametrize("cache", ["paged", "contiguous"])
async def test_encoder_decoder(tmp_path: Path, kind: str, cache: str) -> None:
    target = encoders.make_encoder_decoder(tmp_path / "target", kind)
    model = encoders.load_plain(target)
    config = engine_config(target, cache=cache)
    async with running_pair(config, config, draft_timeout=60.0) as pair:
        passes = dict.fromkeys((0, 4), 0)
        for read in READ:
            right = best_of_encoder(model, read, 3)
            for count in passes:
                found = await searched_by_encoder(pair, read, num_beams=3, n=3, num_speculative_tokens=count)
                assert tokens_of(found) == right, (read, count)
                passes[count] += found[0].summary.speculation.round_count
        assert passes[4] < passes[0]
        await pair.check_clean()


async def test_a_draft_that_is_accelerated_itself(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target")
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    config = DraftConfig(engine=engine_config(draft), own_draft=OwnDraft.NGRAM)
    async with running_pair(engine_config(target), config, draft_timeout=60.0) as pair:
        for prompt in prompts(2):
            found = await searched(pair, prompt, num_beams=3, num_speculative_tokens=4)
            assert tokens_of(found) == expected(load_plain(target), prompt, 3)
            assert found[0].summary.speculation.accepted_token_count
            assert found[0].summary.speculation.fallback_count == 0
        await pair.check_clean()


async def test_a_draft_with_another_vocabulary_continues_no_beams(tmp_path: Path) -> None:
    """Its model has other tokens than the beams: it refuses, and the search goes on without it."""
    target = make_speaking_model(tmp_path / "target", TARGET, seed=3, vocab_size=distribution.VOCABULARY)
    async with translated_pair(target, tmp_path, "reduced") as pair:
        assert pair.draft is not None
        request = pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=[0, 1, 2, 3]), max_tokens=12, num_beams=2, num_speculative_tokens=2
        )
        found = [response async for response in pair.coordinator.GenerateTokens(request)]
        request.num_speculative_tokens = 0
        alone = [response async for response in pair.coordinator.GenerateTokens(request)]
        assert tokens_of(found) == tokens_of(alone)
        assert found[0].summary.speculation.draft_token_count == 0
        (vocabulary,) = pair.draft.host.info().translations
        opening = sequence_service_pb2.OpenSequenceRequest(
            sequence_id="x",
            token_ids=[0],
            sampling={"seed": 1},
            vocab_size=distribution.VOCABULARY,
            target_vocabulary=vocabulary.target_vocabulary,
        )
        await pair.draft.sequences.OpenSequence(opening)
        growing = draft_pb.GrowBeamsRequest(
            sequence_id="x",
            base_length=1,
            tree=beams_pb2.BeamTree(),
            beam_nodes=[-1],
            beam_scores=[0.0],
            num_speculative_tokens=2,
            num_beams=2,
        )
        await refused(pair.draft.hot.GrowBeams(growing), grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED")
        await pair.draft.sequences.CloseSequence(sequence_service_pb2.CloseSequenceRequest(sequence_id="x"))


async def test_one_of_several_drafts_continues_the_beams(tmp_path: Path) -> None:
    """The named one, or without a name the first; several at once are refused by name, and so is none with a model."""
    target = make_model(tmp_path / "target")
    near = make_variation(tmp_path / "near", target, spread=0.01)
    far = make_model(tmp_path / "far", seed=9)
    drafts = {"far": engine_config(far), "near": engine_config(near)}
    async with running_pair(
        engine_config(target), drafts=drafts, local_drafters=("ngram",), draft_timeout=60.0, merge=Merge.TREE
    ) as pair:
        (prompt,) = prompts(1)
        right, accepted = expected(load_plain(target), prompt, 2), {}
        for name in ("near", "far", ""):
            found = await searched(pair, prompt, num_beams=2, drafts=[name] if name else [], num_speculative_tokens=4)
            assert tokens_of(found) == right
            accepted[name] = found[0].summary.speculation.accepted_token_count
        assert accepted["near"] > accepted["far"] == accepted[""]
        combined: tuple[tuple[str, dict[str, Any]], ...] = (
            ("drafts", {"drafts": ["near", "far"]}),
            ("drafts", {"drafts": [Drafter.NGRAM.value]}),
            ("merge", {"merge": pb.MERGE_MODE_TREE}),
        )
        for field, options in combined:
            searching = searched(pair, prompt, num_beams=2, **options)
            found = await refused(searching, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
            assert found["field"] == field
        await pair.check_clean()
