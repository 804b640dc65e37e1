"""Real processes of an encoder-decoder pair, killed while they work: no token is lost, repeated or changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.cluster import ClusterConfig, running_cluster
from tests.tiny_encoder_decoders import generate_greedily, load_plain, make_encoder_decoder, make_variation

COUNT = 120
INPUTS = [[5, 6, 7, 8], [9, 10, 33, 12, 40, 41, 3]]
PENALTY = 1.05
"""Outputs that repeat one token would hide much."""


@pytest.mark.timeout(300)
async def test_a_killed_target_and_a_killed_draft_change_no_token(tmp_path: Path) -> None:
    target = make_encoder_decoder(tmp_path / "target", "t5", seed=1)
    draft = make_variation(tmp_path / "draft", target, spread=0.08)
    model = load_plain(target)
    expected = [generate_greedily(model, ids, COUNT, repetition_penalty=PENALTY) for ids in INPUTS]
    config = ClusterConfig(
        folder=tmp_path,
        target_model=str(target),
        draft_model=str(draft),
        target_flags=[],
        coordinator_flags=["--target-timeout", "60"],
    )
    async with running_cluster(config) as cluster:
        (target_peer,), (draft_peer,) = cluster.targets, cluster.drafts
        under_way = [asyncio.Event() for _ in INPUTS]
        go_on = asyncio.Event()

        async def generate(index: int) -> tuple[list[int], Any]:
            """Reads no further after a few tokens until the services were killed."""
            request = pb.GenerateTokensRequest(
                encoder_token_ids={"ids": INPUTS[index]},  # type: ignore[arg-type]
                max_tokens=COUNT,
                num_speculative_tokens=2,
                sampling={"temperature": 0.0, "repetition_penalty": PENALTY},  # type: ignore[arg-type]
            )
            tokens: list[int] = []
            summary = None
            async for response in cluster.stub.GenerateTokens(request):
                tokens += [token.id for token in response.tokens]
                summary = response.summary
                if len(tokens) > 3:
                    under_way[index].set()
                    await go_on.wait()
            return tokens, summary

        target_peer.way.delay = 0.05
        tasks = [asyncio.create_task(generate(index)) for index in range(len(INPUTS))]
        for event in under_way:
            await event.wait()
        for peer in (target_peer, draft_peer):
            await peer.instance.kill()
            await peer.instance.start()
        go_on.set()
        outputs = await asyncio.gather(*tasks)
        assert [tokens for tokens, _ in outputs] == expected
        assert target_peer.instance.start_count == draft_peer.instance.start_count == 2
