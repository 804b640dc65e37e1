"""Pairs that propose and verify trees of tokens generate what the target generates without a draft."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specpair.options import SamplingOptions
from specpair.v1 import sampling_pb2
from tests.reference import coupled_choice, plain_loop
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model, make_variation

VOCABULARY = 100
PROMPT = [5, 2, 7, 2, 11]
COUNT = 24
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.5, "repetition_penalty": 1.3},
}
SAMPLED = {**OPTIONS, "cut": {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "presence_penalty": 0.5}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("target"), seed=1, vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
async def pair(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    draft = make_variation(tmp_path_factory.mktemp("draft"), folder, spread=0.03)
    async with running_pair(engine_config(folder), engine_config(draft)) as running:
        yield running


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("depth", "nodes"), [(4, 12), (2, 3), (1, 6)])
async def test_greedy(pair: RunningPair, folder: Path, options: str, depth: int, nodes: int) -> None:
    chosen = OPTIONS[options]
    expected = plain_loop(
        load_plain(folder), PROMPT, SamplingOptions(temperature=0.0, **chosen), COUNT, lambda row, _: int(row.argmax())
    )
    output = await pair.generate(
        PROMPT,
        COUNT,
        temperature=0.0,
        num_speculative_tokens=depth,
        num_tree_tokens=nodes,
        ignore_eos=True,
        include_rounds=True,
        **chosen,
    )
    assert output.token_ids == expected
    trees = [
        [token.parent_index for token in report.proposed if token.HasField("parent_index")] for report in output.rounds
    ]
    assert any(len(set(parents)) < len(parents) for parents in trees), "no tree had siblings"
    assert max(map(len, trees)) <= nodes
    await pair.check_clean()


@pytest.mark.parametrize("options", SAMPLED)
async def test_coupled(pair: RunningPair, folder: Path, options: str) -> None:
    chosen, model = SAMPLED[options], load_plain(folder)
    seeds = range(6)
    expected = [
        plain_loop(model, PROMPT, SamplingOptions(seed=seed, **chosen), COUNT, coupled_choice(seed)) for seed in seeds
    ]

    async def generate(seed: int, nodes: int) -> list[int]:
        output = await pair.generate(
            PROMPT,
            COUNT,
            seed=seed,
            rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
            num_speculative_tokens=4,
            num_tree_tokens=nodes,
            ignore_eos=True,
            **chosen,
        )
        return output.token_ids

    # Chains and trees of all outputs share their passes.
    found = await asyncio.gather(*(generate(seed, nodes) for nodes in (0, 12) for seed in seeds))
    assert found == expected + expected
    await pair.check_clean()


async def test_a_draft_that_runs_no_trees_proposes_chains(folder: Path, tmp_path: Path) -> None:
    draft = make_variation(tmp_path, folder, spread=0.03)
    async with running_pair(engine_config(folder), engine_config(draft, deterministic=True)) as pair:
        output = await pair.generate(
            PROMPT, COUNT, temperature=0.0, num_speculative_tokens=4, num_tree_tokens=12, ignore_eos=True
        )
        assert output.summary.speculation.draft_token_count > 4
        assert output.summary.speculation.fallback_count == 0


async def test_targets_of_which_not_all_run_trees_get_chains(folder: Path, tmp_path: Path) -> None:
    """As after a failover in the middle of a request that asked for trees."""
    draft = make_variation(tmp_path, folder, spread=0.03)
    async with running_pair(engine_config(folder, deterministic=True), engine_config(draft)) as pair:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("coordinator.requests.request.RequestReader._read_tree", lambda *_: 8)
            output = await pair.generate(
                PROMPT, COUNT, temperature=0.0, num_speculative_tokens=4, num_tree_tokens=8, ignore_eos=True
            )
        assert output.summary.speculation.draft_token_count > 4
        assert output.summary.speculation.fallback_count == 0
