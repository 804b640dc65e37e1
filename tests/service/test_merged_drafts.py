"""Proposals of several drafts, merged into one tree, give what the target gives without a draft."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from draft_service.config import DraftConfig
from specpair.engine_config import pace_of
from specpair.options import Drafter, Merge, SamplingOptions
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import drafter_pb2, sampling_pb2
from tests.reference import coupled_choice, plain_loop
from tests.service.metrics_load import total
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation

VOCABULARY = 100
PROMPT = [5, 2, 7, 2, 11]
COUNT = 24
TWO, THREE = ["near", "far"], ["far", "near", "ngram"]
WAYS = {"coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED, "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.5, "repetition_penalty": 1.3},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("target"), seed=1, vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
async def pair(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    near = make_variation(tmp_path_factory.mktemp("near"), folder, spread=0.03)
    far = make_variation(tmp_path_factory.mktemp("far"), folder, spread=0.1, seed=2)
    drafts = {"near": engine_config(near), "far": engine_config(far)}
    async with running_pair(engine_config(folder), drafts=drafts, merge=Merge.TREE, merge_wait=60.0) as running:
        yield running


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("drafts", [TWO, THREE], ids=["two", "three"])
async def test_greedy(pair: RunningPair, folder: Path, options: str, drafts: list[str]) -> None:
    chosen = OPTIONS[options]
    expected = plain_loop(
        load_plain(folder), PROMPT, SamplingOptions(temperature=0.0, **chosen), COUNT, lambda row, _: int(row.argmax())
    )
    output = await pair.generate(
        PROMPT,
        COUNT,
        temperature=0.0,
        num_speculative_tokens=4,
        drafts=drafts,
        ignore_eos=True,
        include_rounds=True,
        **chosen,
    )
    assert output.token_ids == expected
    proposed = [token for report in output.rounds for token in report.proposed]
    names = {tuple(token.draft_names) for token in proposed}
    assert any(len(own) > 1 for own in names) and {own[0] for own in names if len(own) == 1} >= set(TWO)
    summary = {own.name: own for own in output.summary.speculation.drafts}
    assert list(summary) == drafts
    for name, own in summary.items():
        assert own.draft_token_count == sum(name in token.draft_names for token in proposed)
        assert own.accepted_token_count == sum(name in token.draft_names for token in proposed if token.accepted)
        assert own.late_count == 0
    await pair.check_clean()


@pytest.mark.parametrize("options", OPTIONS)
async def test_coupled(pair: RunningPair, folder: Path, options: str) -> None:
    chosen, model = OPTIONS[options], load_plain(folder)
    seeds = range(4)
    expected = [
        plain_loop(model, PROMPT, SamplingOptions(seed=seed, **chosen), COUNT, coupled_choice(seed)) for seed in seeds
    ]

    async def generate(seed: int, drafts: list[str]) -> list[int]:
        output = await pair.generate(
            PROMPT,
            COUNT,
            seed=seed,
            rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
            num_speculative_tokens=4,
            drafts=drafts,
            ignore_eos=True,
            **chosen,
        )
        return output.token_ids

    # Chains and trees of all outputs share their passes.
    found = await asyncio.gather(*(generate(seed, drafts) for drafts in (["far"], TWO, THREE) for seed in seeds))
    assert found == expected * 3
    await pair.check_clean()


@pytest.mark.parametrize("way", ["greedy", "coupled", "token"])
async def test_two_merged_accept_at_least_what_the_better_one_does(pair: RunningPair, way: str) -> None:
    fields: dict[str, Any] = {"temperature": 0.0} if way == "greedy" else {"rule": WAYS[way]}

    async def rate(*drafts: str) -> float:
        outputs = [
            await pair.generate(
                [*PROMPT, seed], 40, seed=seed, num_speculative_tokens=4, drafts=drafts, ignore_eos=True, **fields
            )
            for seed in range(6)
        ]
        return 6 * 39 / sum(output.summary.speculation.round_count for output in outputs)

    alone = max([await rate(name) for name in TWO])
    assert await rate(*TWO) >= alone
    await pair.check_clean()


async def test_names_choose_the_drafts(pair: RunningPair) -> None:
    async def shares(**fields: Any) -> list[str]:
        output = await pair.generate(PROMPT, 8, seed=1, num_speculative_tokens=2, ignore_eos=True, **fields)
        assert output.summary.speculation.draft_token_count
        return [own.name for own in output.summary.speculation.drafts]

    assert await shares() == ["near", "far"], "the server's --merge tree"
    assert await shares(merge=pb.MERGE_MODE_NONE) == []
    assert await shares(drafts=["far"]) == []
    assert await shares(drafts=["ngram", "far"]) == ["ngram", "far"]
    assert await shares(drafter=drafter_pb2.DRAFTER_UNIFORM) == []
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert [own.name for own in info.drafts] == ["near", "far"] and info.merge == pb.MERGE_MODE_TREE
    assert info.drafts[0].draft.instance_id == info.draft.instance_id != info.drafts[1].draft.instance_id
    body = {"prompt": PROMPT, "max_tokens": 8, "drafts": ["near", "ngram"], "include_rounds": True}
    async with httpx.AsyncClient(base_url=f"http://{pair.http_address}", timeout=60) as client:
        answer = (await client.post("/v1/completions", json={**body, "num_speculative_tokens": 2})).json()
        assert answer["usage"]["completion_tokens"] == 8
        refused = await client.post("/v1/completions", json={**body, "drafts": ["near", "nobody"]})
    assert refused.status_code == 400 and "nobody" in refused.text and "near, far" in refused.text


async def test_a_draft_that_dies_costs_only_its_proposals(folder: Path, tmp_path: Path) -> None:
    near = make_variation(tmp_path / "near", folder, spread=0.03)
    drafts = {"near": engine_config(near), "other": DraftConfig(drafter=Drafter.NGRAM)}
    async with running_pair(engine_config(folder), drafts=drafts, merge=Merge.TREE, merge_wait=60.0) as pair:
        fields: dict[str, Any] = {"temperature": 0.0, "num_speculative_tokens": 4, "ignore_eos": True}
        whole = await pair.generate(PROMPT, COUNT, **fields)
        await pair.drafts["other"].stop()
        left = await pair.generate(PROMPT, COUNT, **fields)
        assert left.token_ids == whole.token_ids
        by_name = {own.name: own for own in left.summary.speculation.drafts}
        assert by_name["near"].draft_token_count > 4 and by_name["other"].draft_token_count == 0
        await pair.drafts["near"].stop()
        assert (await pair.generate(PROMPT, COUNT, **fields)).token_ids == whole.token_ids


async def test_what_any_of_several_drafts_prepared_is_counted(folder: Path, tmp_path: Path) -> None:
    near = make_variation(tmp_path / "near", folder, spread=0.03)
    drafts = {"other": DraftConfig(drafter=Drafter.NGRAM), "near": engine_config(near)}
    async with running_pair(engine_config(folder, pace=pace_of("10")), drafts=drafts) as pair:
        output = await pair.generate(
            PROMPT,
            COUNT,
            temperature=0.0,
            num_speculative_tokens=3,
            drafts=["near"],
            ignore_eos=True,
            work_ahead=pb.WORK_AHEAD_MODE_ON,
        )
        used = total(pair.front_end.registry, "specpair_ahead_blocks_total", fate="used")
        assert used >= output.summary.speculation.ahead_hit_count > 0
