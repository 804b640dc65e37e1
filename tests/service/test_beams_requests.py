"""Beam search as clients ask for it: over HTTP by OpenAI's client, its limits, and what it cannot be combined with."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest

from command.top.figures import traffic
from command.top.scrape import Endpoint
from specpair.v1 import beams_pb2, sequence_service_pb2
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import draft_service_pb2 as draft_pb
from specpair.v1 import target_service_pb2 as target_pb
from tests.http_service import PROMPT, openai_client, running_bundled_pair
from tests.rpc_errors import refused
from tests.service.metrics_load import total
from tests.services import RunningPair

COUNT = 12


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_bundled_pair(512, draft_timeout=60.0) as pair:
        yield pair
        await pair.check_clean()


async def over_grpc(pair: RunningPair, **fields: Any) -> list[pb.GenerateTokensResponse]:
    request = pb.GenerateTokensRequest(text=PROMPT, max_tokens=COUNT, **fields)
    return [response async for response in pair.coordinator.GenerateTokens(request)]


async def test_openai_client(pair: RunningPair) -> None:
    """vLLM's name and transformers' names ask for the same; the choices are the best beams of the gRPC API."""
    found = await over_grpc(pair, num_beams=3, n=3, length_penalty=0.5, early_stopping=pb.EARLY_STOPPING_FIRST)
    options = {"length_penalty": 0.5, "early_stopping": True}
    async with openai_client(pair) as client:
        for asked in ({"use_beam_search": True}, {"num_beams": 3}):
            completion = await client.completions.create(
                model="target", prompt=PROMPT, max_tokens=COUNT, n=3, extra_body={**asked, **options}
            )
            assert [choice.text for choice in completion.choices] == [response.text for response in found]
            scores = [choice.model_extra["beam_score"] for choice in completion.choices]  # type: ignore[index]
            assert scores == pytest.approx([response.summary.beam_score for response in found])
            assert completion.usage is not None
            assert completion.usage.completion_tokens == sum(len(response.tokens) for response in found)
        chunks = await client.completions.create(
            model="target", prompt=PROMPT, max_tokens=COUNT, n=3, stream=True, extra_body={"num_beams": 3, **options}
        )
        texts = ["", "", ""]
        async for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == [response.text for response in found]


async def test_numbers_of_the_search(pair: RunningPair) -> None:
    """The first beam has them, so that sums over all beams are right."""
    first, second = await over_grpc(pair, num_beams=2, n=2, num_speculative_tokens=4)
    speculation = first.summary.speculation
    assert 0 < speculation.round_count < COUNT - 1
    assert 0 < speculation.accepted_token_count <= speculation.draft_token_count
    assert not second.summary.speculation.round_count
    assert first.summary.beam_score >= second.summary.beam_score
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert info.max_num_beams == 16
    assert info.target.runs_beams and info.draft.runs_beams


async def test_metrics_of_the_search(pair: RunningPair) -> None:
    """Its beams come whole: they have a first token and no time between tokens, and no rounds of a rule."""
    registry = pair.front_end.registry
    names = [
        *("generation_tokens_total", "time_to_first_token_seconds_count", "inter_token_latency_seconds_count"),
        *("request_acceptance_rate_count", "spec_decode_num_draft_tokens_total", "beam_searches_total"),
    ]
    before = {name: total(registry, f"specpair_{name}") for name in names}
    await over_grpc(pair, num_beams=2, n=2, num_speculative_tokens=4)
    added = [total(registry, f"specpair_{name}") - before[name] for name in names]
    assert added == [2 * COUNT, 2, 0, 0, 0, 1]


async def test_top_counts_tokens_of_rounds_alone(pair: RunningPair) -> None:
    coordinator = Endpoint(f"http://{pair.http_address}/metrics", 60.0)
    await asyncio.to_thread(coordinator.ask)
    await over_grpc(pair, num_speculative_tokens=0, ignore_eos=True)
    await over_grpc(pair, num_beams=2, n=2)
    await asyncio.to_thread(coordinator.ask)
    now, before = coordinator.latest, coordinator.earliest
    assert now is not None and before is not None
    assert traffic(now.exposition.since(before.exposition), 1.0).tokens_per_round == 1.0


async def test_echo(pair: RunningPair) -> None:
    *prompt, found = await over_grpc(pair, num_beams=2, echo=True)
    assert [token for response in prompt for token in response.prompt_tokens]
    assert found.text.startswith(PROMPT) and len(found.tokens) == COUNT


REFUSED: dict[str, dict[str, Any]] = {
    "num_beams": {"num_beams": 17},
    "n": {"num_beams": 2, "n": 3},
    "best_of": {"num_beams": 4, "best_of": 4},
    "length_penalty": {"num_beams": 2, "length_penalty": 5.5},
    "early_stopping": {"num_beams": 2, "early_stopping": 9},
    "sampling.temperature": {"num_beams": 2, "sampling": {"temperature": 0.5}},
    "sampling.repetition_penalty": {"num_beams": 2, "sampling": {"repetition_penalty": 1.2}},
    "sampling.logit_bias": {"num_beams": 2, "sampling": {"logit_bias": {5: 1.0}}},
    "stop_strings": {"num_beams": 2, "stop_strings": ["x"]},
    "rule": {"num_beams": 2, "rule": 2},
    "lenience": {"num_beams": 2, "lenience": 1.0},
    "logprobs": {"num_beams": 2, "logprobs": 0},
    "num_tree_tokens": {"num_beams": 2, "num_tree_tokens": 4},
    "include_rounds": {"num_beams": 2, "include_rounds": True},
    "resumed_token_ids": {"num_beams": 2, "resumed_token_ids": [5], "sampling": {"seed": 1}},
    "drafter": {"num_beams": 2, "drafter": 2},
    "structured_output": {"num_beams": 2, "structured_output": {"regex": "[a-z]+"}},
}


@pytest.mark.parametrize("field", REFUSED)
async def test_refused_by_name(pair: RunningPair, field: str) -> None:
    metadata = await refused(over_grpc(pair, **REFUSED[field]), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert metadata["field"] == field


@pytest.mark.parametrize("field", ["length_penalty", "early_stopping"])
async def test_options_of_beams_alone(pair: RunningPair, field: str) -> None:
    metadata = await refused(over_grpc(pair, **{field: 1}), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert metadata["field"] == field


HTTP_REFUSED: dict[str, dict[str, Any]] = {
    "num_beams": {"num_beams": 17},
    "temperature": {"num_beams": 2, "temperature": 1.0},
    "use_beam_search": {"num_beams": 2, "use_beam_search": False},
    "early_stopping": {"num_beams": 2, "early_stopping": "soon"},
    "stop": {"num_beams": 2, "stop": "x"},
    "response_format": {"num_beams": 2, "response_format": {"type": "json_object"}},
}


@pytest.mark.parametrize("name", HTTP_REFUSED)
async def test_refused_over_http(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 4, **HTTP_REFUSED[name]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(name)


TREE = beams_pb2.BeamTree(token_ids=[5, 6], parent_indices=[-1, 0])
BAD_TREES: dict[str, dict[str, Any]] = {
    "tree.parent_indices": {"tree": {"token_ids": [5], "parent_indices": []}},
    "tree.parent_indices[1]": {"tree": {"token_ids": [5, 6], "parent_indices": [-1, 1]}},
    "tree.token_ids[1]": {"tree": {"token_ids": [5, 5], "parent_indices": [-1, -1]}},
    "tree.token_ids[0]": {"tree": {"token_ids": [10**6], "parent_indices": [-1]}},
    "tree.token_ids": {"tree": {"token_ids": [5] * 257, "parent_indices": range(-1, 256)}},
}
BAD_SCORES: dict[str, dict[str, Any]] = {
    **BAD_TREES,
    "asked_nodes length": {"asked_nodes": []},
    "asked_nodes[0]": {"asked_nodes": [2]},
    "asked_nodes": {"asked_nodes": [1, 1]},
    "logprobs": {"logprobs": 513},
    "base_length": {"base_length": 511},
}
BAD_GROWTHS: dict[str, dict[str, Any]] = {
    **BAD_TREES,
    "beam_nodes[0]": {"beam_nodes": [-2]},
    "beam_scores": {"beam_scores": []},
    "beam_scores[0]": {"beam_scores": [float("nan")]},
    "num_beams": {"num_beams": 65},
    "num_speculative_tokens": {"num_speculative_tokens": 0},
}


async def opened(sequences: Any, name: str, length: int = 3) -> None:
    await sequences.OpenSequence(
        sequence_service_pb2.OpenSequenceRequest(sequence_id=name, token_ids=[5] * length, sampling={"seed": 1})
    )


@pytest.mark.parametrize("field", BAD_SCORES)
async def test_bad_scores(pair: RunningPair, field: str) -> None:
    await opened(pair.target.sequences, "bad", 511)
    call = {"sequence_id": "bad", "step": 0, "base_length": 3, "tree": TREE, "asked_nodes": [1], "logprobs": 4}
    metadata = await refused(
        pair.target.hot.ScoreTree(target_pb.ScoreTreeRequest(**{**call, **BAD_SCORES[field]})),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    assert metadata["field"] == field
    await pair.target.sequences.CloseSequence(sequence_service_pb2.CloseSequenceRequest(sequence_id="bad"))


@pytest.mark.parametrize("field", BAD_GROWTHS)
async def test_bad_growths(pair: RunningPair, field: str) -> None:
    assert pair.draft is not None
    await opened(pair.draft.sequences, "bad")
    call = {"sequence_id": "bad", "step": 0, "base_length": 3, "tree": TREE, "beam_nodes": [1], "beam_scores": [-1.0]}
    call |= {"num_speculative_tokens": 2, "num_beams": 4}
    metadata = await refused(
        pair.draft.hot.GrowBeams(draft_pb.GrowBeamsRequest(**{**call, **BAD_GROWTHS[field]})),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    assert metadata["field"] == field
    await pair.draft.sequences.CloseSequence(sequence_service_pb2.CloseSequenceRequest(sequence_id="bad"))
