"""Real processes of an encoder-decoder pair, killed while they work: no token is lost, repeated or changed."""

import asyncio
from pathlib import Path

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.cluster import ClusterConfig, running_cluster
from tests.tiny_encoder_decoders import generate_greedily, load_plain, make_encoder_decoder, make_variation

COUNT = 120
INPUTS = [[5, 6, 7, 8], [9, 10, 33, 12, 40, 41, 3]]
SECONDS = 0.2
"""Each way of a call to the target, so that no output is finished before nothing passes any more."""
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

        async def generate(index: int) -> list[int]:
            request = pb.GenerateTokensRequest(
                encoder_token_ids={"ids": INPUTS[index]},  # type: ignore[arg-type]
                max_tokens=COUNT,
                num_speculative_tokens=2,
                sampling={"temperature": 0.0, "repetition_penalty": PENALTY},  # type: ignore[arg-type]
            )
            tokens: list[int] = []
            async for response in cluster.stub.GenerateTokens(request):
                tokens += [token.id for token in response.tokens]
                if len(tokens) > 3:
                    under_way[index].set()
            return tokens

        target_peer.way.delay(SECONDS)
        tasks = [asyncio.create_task(generate(index)) for index in range(len(INPUTS))]
        for event in under_way:
            await event.wait()
        target_peer.way.drop()
        for peer in (target_peer, draft_peer):
            await peer.instance.kill()
            assert not any(task.done() for task in tasks), "nothing was left to do"
            await peer.instance.start()
        target_peer.way.heal()
        assert await asyncio.gather(*tasks) == expected
        assert target_peer.instance.start_count == draft_peer.instance.start_count == 2
