"""Proposals of several drafts, merged into one tree, give what the target gives without a draft."""

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
TWO, THREE = ["near", "far"], ["far", "near", "ngram"]
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
    async with running_pair(engine_config(folder), drafts=drafts, merge="tree", merge_wait=60.0) as running:
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
