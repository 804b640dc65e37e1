"""Reports of rounds: what was proposed, how likely both models found it, and when each was at work."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch

from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

PROMPT = [5, 2, 7, 2, 11]
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RunningPair, Any, Any]]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=24, initializer_range=0.25)
    draft = make_model(folder / "draft", seed=2, vocab_size=24, initializer_range=0.25)
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield pair, load_plain(target), load_plain(draft)


async def responses_of(pair: RunningPair, temperature: float, **fields: Any) -> list[pb.GenerateTokensResponse]:
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=PROMPT),
        max_tokens=40,
        sampling=sampling_pb2.SamplingOptions(temperature=temperature, seed=4),
        **{"num_speculative_tokens": 3, "include_rounds": True, **fields},
    )
    return [response async for response in pair.coordinator.GenerateTokens(request)]


@torch.inference_mode()
def probability(model: Any, tokens: list[int], token: int, temperature: float) -> float:
    logits = model(input_ids=torch.tensor([tokens])).logits[0, -1].double()
    return float(torch.softmax(logits / temperature, -1)[token])


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
async def test_probabilities_are_those_of_the_two_models(
    setting: tuple[RunningPair, Any, Any], temperature: float
) -> None:
    pair, target, draft = setting
    tokens = list(PROMPT)
    accepted = rejected = 0
    for response in await responses_of(pair, temperature):
        before = list(tokens)
        for proposed in response.round.proposed:
            expected = probability(target, before, proposed.id, temperature or 1.0)
            assert proposed.target_probability == pytest.approx(expected, abs=1e-4)
            assert proposed.HasField("draft_probability") is (temperature > 0.0)
            if temperature:
                own = probability(draft, before, proposed.id, temperature)
                assert proposed.draft_probability == pytest.approx(own, rel=0.02, abs=0.005)
            before.append(proposed.id)
            accepted += proposed.accepted
            rejected += not proposed.accepted
        kept = [proposed.id for proposed in response.round.proposed if proposed.accepted]
        tokens += [token.id for token in response.tokens]
        assert [token.id for token in response.tokens][: len(kept)] == kept[: len(response.tokens)]
    assert accepted and rejected


async def test_rounds_are_numbered_and_follow_each_other(setting: tuple[RunningPair, Any, Any]) -> None:
    pair, _, _ = setting
    rounds = [response.round for response in await responses_of(pair, 1.0)]
    assert [one.step for one in rounds] == list(range(len(rounds)))
    assert not rounds[0].HasField("draft") and not rounds[0].proposed
    ends = [0]
    for one in rounds[1:-1]:
        assert one.HasField("draft") and one.proposed and one.batch_token_count == len(one.proposed) + 1
        for call in (one.draft, one.verify):
            assert call.start_us >= ends[-1]
            assert 0 < call.compute_us <= call.elapsed_us and call.queue_us <= call.elapsed_us
            ends.append(call.start_us + call.elapsed_us)


async def test_a_plain_round_has_no_draft(setting: tuple[RunningPair, Any, Any]) -> None:
    pair, _, _ = setting
    for response in await responses_of(pair, 1.0, num_speculative_tokens=0):
        assert response.HasField("round") and not response.round.HasField("draft") and not response.round.proposed


async def test_nothing_is_reported_unasked_and_asking_changes_nothing(setting: tuple[RunningPair, Any, Any]) -> None:
    pair, _, _ = setting
    asked = await responses_of(pair, 1.0)
    unasked = await responses_of(pair, 1.0, include_rounds=False)
    assert not any(response.HasField("round") for response in unasked)
    for one, other in zip(asked, unasked, strict=True):
        assert [token.id for token in one.tokens] == [token.id for token in other.tokens]
