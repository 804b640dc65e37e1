"""Encoder-decoder models with drafts of every kind and with lost sequences: every output is the target's own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from draft_service.config import DraftConfig
from specpair.options import Merge, OwnDraft
from specpair.v1 import coordinator_service_pb2 as pb
from target_service.tree_scorer import TreeScorer
from tests.service.test_beams_combined import READ, best_of_encoder, searched_by_encoder, tokens_of
from tests.service.test_encoder_decoder import COUNT, INPUTS, outputs_of
from tests.services import engine_config, running_pair
from tests.tiny_encoder_decoders import generate_greedily, load_plain, make_encoder_decoder, make_variation

SMALL: dict[str, Any] = {"cache": "paged", "max_model_len": 64, "num_blocks": 40}
"""A cache in which not all sequences have room."""
WAYS: dict[str, dict[str, Any]] = {
    "own draft": {},
    "merged": {},
    "tree": {"num_tree_tokens": 10},
    "work ahead": {"work_ahead": pb.WORK_AHEAD_MODE_ON},
}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("way", WAYS)
async def test_packed_passes_of_many_inputs(tmp_path: Path, way: str) -> None:
    target = make_encoder_decoder(tmp_path / "target", "t5", seed=1)
    folders = [make_variation(tmp_path / f"draft-{seed}", target, spread=0.03, seed=seed) for seed in range(2)]
    model, engines = load_plain(target), [engine_config(folder, **SMALL) for folder in folders]
    drafts: dict[str, Any] = {"draft": engines[0]}
    if way == "own draft":
        drafts = {"draft": DraftConfig(engine=engines[0], own_draft=OwnDraft.NGRAM)}
    elif way == "merged":
        named = {"near": engines[0], "far": engines[1]}
        drafts = {"drafts": named, "local_drafters": ("ngram",), "merge": Merge.TREE, "merge_wait": 60.0}
    async with running_pair(engine_config(target, **SMALL), **drafts, draft_timeout=60.0) as pair:
        wanted: dict[str, Any] = {"sampling": {"temperature": 0.0}, "num_speculative_tokens": 4, **WAYS[way]}
        asked = [(read, n) for read in INPUTS for n in (1, 3)]
        found = await asyncio.gather(*(outputs_of(pair, read, n=n, **wanted) for read, n in asked))
        for (read, n), outputs in zip(asked, found, strict=True):
            assert outputs == [generate_greedily(model, read, COUNT)] * n
        request = pb.GenerateTokensRequest(encoder_token_ids={"ids": INPUTS[0]}, max_tokens=COUNT, **wanted)  # type: ignore[arg-type]
        *_, last = [response async for response in pair.coordinator.GenerateTokens(request)]
        numbers = last.summary.speculation
        assert numbers.accepted_token_count
        assert bool(numbers.own_draft.pass_count) == (way == "own draft")
        assert len(numbers.drafts) == (3 if way == "merged" else 0)
        await pair.check_clean()


async def test_a_beam_search_whose_sequences_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder reads its input again where a sequence is opened again."""
    target = make_encoder_decoder(tmp_path / "target", "t5", seed=1)
    config = engine_config(target, **SMALL)
    async with running_pair(config, config, draft_timeout=60.0, draft_cooldown=0.001) as pair:
        score, steps = TreeScorer.score, list[int]()

        async def forgotten(scorer: TreeScorer, call: Any, body: bytes) -> Any:
            steps.append(call.step)
            answer = await score(scorer, call, body)
            if len(steps) % 3 == 0:
                for service in (pair.target, pair.draft):
                    assert service is not None
                    service.host.sequences.close_all()
            return answer

        monkeypatch.setattr(TreeScorer, "score", forgotten)
        model = load_plain(target)
        for read in READ:
            found = await searched_by_encoder(pair, read, num_beams=3, n=3, num_speculative_tokens=2)
            assert tokens_of(found) == best_of_encoder(model, read, 3)
        assert len(steps) > len(set(steps)), "passes were asked again"
        await pair.check_clean()
