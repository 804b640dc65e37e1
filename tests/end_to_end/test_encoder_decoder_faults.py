"""Real processes of an encoder-decoder pair, killed while they work: no token is lost, repeated or changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from tests.faults.cluster import ClusterConfig, running_cluster
from tests.reference import coupled_choice, plain_loop
from tests.service.distributions import RULES
from tests.service.test_encoder_decoder import SPREADS, START
from tests.tiny_encoder_decoders import (
    Conditioned,
    generate_greedily,
    load_plain,
    make_encoder_decoder,
    make_variation,
)

COUNT = 120
INPUTS = [[5, 6, 7, 8], [9, 10, 33, 12, 40, 41, 3]]
SECONDS = 0.2
"""Each way of a call to the target, so that no output is finished before nothing passes any more."""
PENALTY = 1.05
"""Outputs that repeat one token would hide much."""
ASKED: dict[str, tuple[float, dict[str, Any]]] = {
    "t5": (0.0, {"num_speculative_tokens": 2}),
    "mt5": (1.0, {"num_speculative_tokens": 4}),
    "bart": (1.0, {"num_speculative_tokens": 3}),
}
"""Temperature and K."""
ROOM: dict[str, dict[str, int]] = {"bart": {"max_position_embeddings": 2 * COUNT}}
"""What a kind needs for outputs of this length."""


def expected_of(model: Any, ids: list[int], start: int, sampling: SamplingOptions) -> list[int]:
    """What the target writes alone."""
    if sampling.is_greedy:
        return generate_greedily(model, ids, COUNT, repetition_penalty=PENALTY)
    return plain_loop(Conditioned(model, ids), [start], sampling, COUNT, coupled_choice(sampling.seed))


@pytest.mark.few_cases(1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ASKED)
async def test_a_killed_target_and_a_killed_draft_change_no_token(kind: str, tmp_path: Path) -> None:
    target = make_encoder_decoder(tmp_path / "target", kind, seed=1, **ROOM.get(kind, {}))
    draft = make_variation(tmp_path / "draft", target, spread=SPREADS[kind])
    model, (temperature, asked) = load_plain(target), ASKED[kind]
    sampling = SamplingOptions(temperature=temperature, repetition_penalty=PENALTY, seed=7)
    expected = [expected_of(model, ids, START[kind], sampling) for ids in INPUTS]
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
                rule=RULES["coupled"],
                sampling=sampling_to_proto(sampling),
                **asked,
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
