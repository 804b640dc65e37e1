"""Rounds of a target's head that come in runs are those that are asked for one by one, through the real services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from tests.service.distributions import RULES
from tests.service.metrics_load import total
from tests.service.test_runs_of_outputs import INTERVALS, calls
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_heads import make_head
from tests.tiny_models import make_model

VOCABULARY = 12
"""Few, so that an untrained head is right at times."""
PROMPT = [5, 2, 7, 2, 11]
COUNT = 60
OPTIONS = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0, "seed": 3},
    "penalties": {"temperature": 0.8, "seed": 4, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "top_p": 0.9},
    "logprobs": {"temperature": 1.0, "seed": 5, "logprobs": 2},
}


@pytest.fixture(scope="module")
async def pairs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningPair]]:
    """Two targets with the same head, without any draft."""
    async with running(tmp_path_factory.mktemp("models")) as both:
        yield both


@pytest.fixture(scope="module")
async def pairs_with_trees(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningPair]]:
    """The same, whose head proposes trees where any tree is exact."""
    async with running(tmp_path_factory.mktemp("models"), head_tree_tokens=7) as both:
        yield both


@asynccontextmanager
async def running(folder: Path, **fields: Any) -> AsyncIterator[dict[str, RunningPair]]:
    target = make_model(folder / "target", seed=1, vocab_size=VOCABULARY, num_hidden_layers=3)
    config = engine_config(target, head=str(make_head(folder / "head", vocab_size=VOCABULARY)), **fields)
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(running_pair(config, stream_interval=interval))
            for name, interval in INTERVALS.items()
        }


async def both(pairs: dict[str, RunningPair], **options: Any) -> tuple[Generated, Generated]:
    """The same request, with single rounds and with runs."""
    fields = {"ignore_eos": True, "drafter": drafter_to_proto(Drafter.EAGLE), **options}
    single, runs = [await pairs[name].generate(PROMPT, COUNT, **fields) for name in INTERVALS]
    for pair in pairs.values():
        await pair.check_clean()
    return single, runs


def counts(made: Generated) -> list[Any]:
    """Of the rounds and the proposed tokens."""
    speculation = made.summary.speculation
    return [
        *(speculation.round_count, speculation.draft_round_count, speculation.draft_token_count),
        *(speculation.accepted_token_count, list(speculation.accepted_per_position)),
    ]


@pytest.mark.few_cases(12)
@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_tokens_and_counts_are_those_of_single_rounds(
    pairs: dict[str, RunningPair], count: int, name: str, rule: str
) -> None:
    before = {each: calls(pair) for each, pair in pairs.items()}
    single, runs = await both(pairs, rule=RULES[rule], num_speculative_tokens=count, **OPTIONS[name])
    used = {each: calls(pair) - before[each] for each, pair in pairs.items()}
    assert len(runs.token_ids) == COUNT
    assert (runs.token_ids, runs.origins, runs.text) == (single.token_ids, single.origins, single.text)
    assert counts(runs) == counts(single)
    assert used["runs"] < used["single"] / 2


@pytest.mark.parametrize("name", ["greedy", "drawn", "logprobs"])
@pytest.mark.parametrize("count", [1, 3])
async def test_so_they_are_with_trees(pairs_with_trees: dict[str, RunningPair], count: int, name: str) -> None:
    pairs = pairs_with_trees

    def trees(pair: RunningPair) -> list[float]:
        registry = pair.front_end.registry
        names = ("specpair_tree_tokens_count", "specpair_tree_tokens_sum", "specpair_tree_accepted_tokens_sum")
        return [total(registry, each) for each in names]

    before = {each: (calls(pair), trees(pair)) for each, pair in pairs.items()}
    fields = {"rule": RULES["coupled"], "num_speculative_tokens": count, **OPTIONS[name]}
    single, runs = await both(pairs, **fields)
    assert (runs.token_ids, runs.text) == (single.token_ids, single.text) and len(runs.token_ids) == COUNT
    assert counts(runs) == counts(single)
    assert runs.origins == single.origins and {pb.TOKEN_ORIGIN_BONUS, pb.TOKEN_ORIGIN_CORRECTION} <= set(runs.origins)
    used = {each: calls(pair) - before[each][0] for each, pair in pairs.items()}
    assert used["runs"] < used["single"] / 2
    seen = [
        [now - then for now, then in zip(trees(pair), before[each][1], strict=True)] for each, pair in pairs.items()
    ]
    assert seen[0] == seen[1] and 0 < seen[0][2] < seen[0][1]


async def test_runs_with_trees_reach_the_end_of_the_context(tmp_path: Path) -> None:
    """A tree has more tokens than can stay of it, and room for them all only where it is judged last."""
    async with running(tmp_path, head_tree_tokens=12, max_model_len=len(PROMPT) + COUNT) as pairs:
        for seed in range(12):
            options = {"rule": RULES["coupled"], "num_speculative_tokens": 3, "temperature": 1.0, "seed": seed}
            single, runs = await both(pairs, **options)
            assert (runs.token_ids, counts(runs)) == (single.token_ids, counts(single))


async def test_adaptive_outputs_are_the_same_under_the_coupled_rule(pairs: dict[str, RunningPair]) -> None:
    fields = {"ignore_eos": True, "rule": RULES["coupled"], "drafter": drafter_to_proto(Drafter.EAGLE)}
    single, runs = [
        await asyncio.gather(*(pair.generate(PROMPT, COUNT, seed=seed, **fields) for seed in range(12)))
        for pair in pairs.values()
    ]
    assert [output.token_ids for output in runs] == [output.token_ids for output in single]
    for pair in pairs.values():
        await pair.check_clean()


@pytest.mark.parametrize("place", [7, 8, 9, 10, 11, 30])
async def test_an_output_ends_at_a_stop_token_in_a_run(pairs: dict[str, RunningPair], place: int) -> None:
    """Wherever in a round that is; what follows it counts as nothing."""
    options = {"num_speculative_tokens": 3, "temperature": 1.0, "seed": 3}
    whole, _ = await both(pairs, **options)
    single, runs = await both(pairs, stop_token_ids=[whole.token_ids[place]], **options)
    assert runs.token_ids == single.token_ids and len(runs.token_ids) <= place + 1
    assert counts(runs) == counts(single)


async def test_several_outputs_of_one_prompt_are_the_same(pairs: dict[str, RunningPair]) -> None:
    options = {"num_speculative_tokens": 2, "temperature": 1.0, "seed": 7, "n": 3}
    single, runs = await both(pairs, **options)
    assert sorted(runs.token_ids) == sorted(single.token_ids) and len(runs.token_ids) == 3 * COUNT


async def test_rejected_tokens_and_rounds_are_told_one_by_one(pairs: dict[str, RunningPair]) -> None:
    """A run does not say which tokens were rejected."""
    for field in ("include_rejected", "include_rounds"):
        before = calls(pairs["runs"])
        _, runs = await both(pairs, num_speculative_tokens=2, temperature=1.0, seed=7, **{field: True})
        assert calls(pairs["runs"]) - before > 0.8 * runs.summary.speculation.round_count  # the last are not promised


async def test_what_the_head_takes_is_time_of_the_draft(pairs: dict[str, RunningPair]) -> None:
    """And no longer of the target, which says how much of its computation it was."""

    def times(pair: RunningPair) -> list[float]:
        name = "specpair_round_time_seconds"
        return [total(pair.front_end.registry, f"{name}_{each}", part="draft") for each in ("count", "sum")]

    for pair in pairs.values():
        before = times(pair)
        await pair.generate(PROMPT, COUNT, ignore_eos=True, num_speculative_tokens=0, temperature=0.0)
        assert times(pair) == before
        made = await pair.generate(PROMPT, COUNT, ignore_eos=True, num_speculative_tokens=3, temperature=0.0)
        count, seconds = (now - then for now, then in zip(times(pair), before, strict=True))
        assert count == made.summary.speculation.draft_round_count > 0
        assert 0.0 < seconds < made.summary.total_time_us * 1e-6


async def test_a_report_shows_the_heads_time_after_the_targets(pairs: dict[str, RunningPair]) -> None:
    fields = {"ignore_eos": True, "num_speculative_tokens": 2, "include_rounds": True, "temperature": 0.0}
    made = await pairs["runs"].generate(PROMPT, COUNT, **fields)
    for before, after in zip(made.rounds[:-2], made.rounds[1:-1], strict=True):
        assert after.draft.compute_us > 0
        assert after.draft.start_us >= before.verify.start_us + before.verify.elapsed_us - 1, "but for rounding"
