"""Outputs whose tokens come in runs are those that come token by token, through all three processes' code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.service.distributions import RULES
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_models import make_model, make_variation

VOCABULARY = 100
PROMPT = [5, 2, 7, 2, 11]
COUNT = 48
INTERVALS = {"single": 0.0, "runs": 1.0}


@pytest.fixture(scope="module")
async def pairs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningPair]]:
    target = make_model(tmp_path_factory.mktemp("target"), seed=1, vocab_size=VOCABULARY)
    draft = make_variation(tmp_path_factory.mktemp("draft"), target, spread=0.03)
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                running_pair(engine_config(target), engine_config(draft), stream_interval=interval)
            )
            for name, interval in INTERVALS.items()
        }


async def both(pairs: dict[str, RunningPair], **options: Any) -> tuple[Generated, Generated]:
    """The same request in single tokens and in runs."""
    single, runs = [await pairs[name].generate(PROMPT, COUNT, **options) for name in INTERVALS]
    for pair in pairs.values():
        await pair.check_clean()
    return single, runs


def calls(pair: RunningPair) -> float:
    """Calls whose step the target had begun by itself, as almost all are."""
    name = "specpair_target_continuations_total"
    return pair.target.registry.get_sample_value(name, {"outcome": "used"}) or 0.0


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 3},
        {"temperature": 0.8, "seed": 4, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "top_p": 0.9},
        {"temperature": 1.0, "seed": 5, "logprobs": 2},
    ],
)
async def test_without_speculation_tokens_and_counts_are_the_same(
    pairs: dict[str, RunningPair], options: dict[str, Any], rule: str
) -> None:
    before = {name: calls(pair) for name, pair in pairs.items()}
    single, runs = await both(pairs, rule=RULES[rule], num_speculative_tokens=0, **options)
    used = {name: calls(pair) - before[name] for name, pair in pairs.items()}
    assert runs.token_ids == single.token_ids and len(runs.token_ids) == COUNT
    assert runs.text == single.text
    assert runs.summary.speculation.round_count == single.summary.speculation.round_count == COUNT - 1
    assert used["runs"] < used["single"] == COUNT - 1


async def test_several_outputs_of_one_prompt_are_the_same(pairs: dict[str, RunningPair]) -> None:
    single, runs = await both(pairs, num_speculative_tokens=0, temperature=1.0, seed=7, n=3, rule=RULES["coupled"])
    assert sorted(runs.token_ids) == sorted(single.token_ids) and len(runs.token_ids) == 3 * COUNT


async def test_adaptive_outputs_are_the_same_under_the_coupled_rule(pairs: dict[str, RunningPair]) -> None:
    requests = [
        asyncio.gather(*(pair.generate(PROMPT, COUNT, seed=seed, rule=RULES["coupled"]) for seed in range(12)))
        for pair in pairs.values()
    ]
    single, runs = [await outputs for outputs in requests]
    assert [output.token_ids for output in runs] == [output.token_ids for output in single]
    for pair in pairs.values():
        await pair.check_clean()


async def test_an_output_ends_at_its_stop_string_in_a_run(pairs: dict[str, RunningPair]) -> None:
    single, _ = await both(pairs, num_speculative_tokens=0, temperature=1.0, seed=3)
    stops = [single.token_ids[20]]
    single, runs = await both(pairs, num_speculative_tokens=0, temperature=1.0, seed=3, stop_token_ids=stops)
    assert runs.token_ids == single.token_ids
    assert len(runs.token_ids) < COUNT


async def test_what_reports_its_rounds_reports_each_pass(pairs: dict[str, RunningPair]) -> None:
    """The timelines of `specpair trace` and of the page would show a run as one long pass."""
    _, reported = await both(pairs, num_speculative_tokens=0, temperature=1.0, seed=3, include_rounds=True)
    assert len(reported.rounds) == len(reported.token_ids) == COUNT
    assert [report.step for report in reported.rounds] == list(range(COUNT))
