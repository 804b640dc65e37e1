"""With a deterministic target, tokens and logprobs are the same bits in every company, for every K, on every cache."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from command.info import info_table
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import make_model, make_variation

COUNT = 16
PROMPTS = [[random.Random(length).randrange(1, 64) for _ in range(length)] for length in (1, 9, 30)]
OTHERS = [[random.Random(100 + length).randrange(1, 64) for _ in range(length)] for length in range(2, 50, 3)]
GREEDY: dict[str, Any] = {"temperature": 0}
COUPLED: dict[str, Any] = {"temperature": 1, "seed": 7, "rule": sampling_pb2.ACCEPTANCE_RULE_COUPLED}
COUPLED_ADJUSTED: dict[str, Any] = {**COUPLED, "top_p": 0.9, "frequency_penalty": 0.5, "logit_bias": {4: 2.0}}
TARGETS = {
    "contiguous": {"cache": "contiguous"},
    "paged": {"cache": "paged"},
    # Blocks for one sequence of full length and a little more: the others' caches are taken away all the time.
    "paged, tight": {"cache": "paged", "num_blocks": 40},
}

Output = list[tuple[int, float, tuple[float, ...]]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("target"), seed=1, num_hidden_layers=2)


@pytest.fixture(scope="module")
def drafts(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drafts")
    alike = make_variation(folder / "alike", target, spread=0.03)
    return {"alike": alike, "random": make_model(folder / "random", seed=2)}


async def generate(pair: RunningPair, prompt: list[int], k: int, options: dict[str, Any]) -> Output:
    """For each token its id, its logprob and those of the three likeliest."""
    sampling = {name: value for name, value in options.items() if name != "rule"}
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=prompt),
        max_tokens=COUNT,
        num_speculative_tokens=k,
        logprobs=3,
        sampling=sampling,
        rule=options.get("rule"),
    )
    tokens = [token async for response in pair.coordinator.GenerateTokens(request) for token in response.tokens]
    return [(token.id, token.logprobs.logprob, tuple(token.logprobs.top_logprobs)) for token in tokens]


async def alone(pair: RunningPair, k: int, options: dict[str, Any]) -> list[Output]:
    return [await generate(pair, prompt, k, options) for prompt in PROMPTS]


async def among_others(pair: RunningPair, k: int, options: dict[str, Any]) -> list[Output]:
    """With 16 requests of other lengths, other K and other options beside them."""
    others = [generate(pair, prompt, i % 9, {"temperature": i % 3 / 2, "seed": i}) for i, prompt in enumerate(OTHERS)]
    outputs = await asyncio.gather(*(generate(pair, prompt, k, options) for prompt in PROMPTS), *others)
    return outputs[: len(PROMPTS)]


@pytest.mark.few_cases("paged, tight")
@pytest.mark.parametrize("kind", TARGETS)
async def test_greedy(kind: str, target: Path, drafts: dict[str, Path]) -> None:
    async with running_pair(engine_config(target, deterministic=True)) as pair:
        expected = await alone(pair, 0, GREEDY)
    assert [len(output) for output in expected] == [COUNT] * len(PROMPTS)
    draft = engine_config(drafts["alike"])
    async with running_pair(engine_config(target, deterministic=True, **TARGETS[kind]), draft) as pair:
        for k in (0, 1, 3, 5, 8):
            assert await alone(pair, k, GREEDY) == expected, f"alone, K = {k}"
            assert await among_others(pair, k, GREEDY) == expected, f"among others, K = {k}"
        await pair.check_clean()


@pytest.mark.few_cases("alike")
@pytest.mark.parametrize(
    ("draft", "options"),
    [("alike", COUPLED), ("random", COUPLED), (None, COUPLED), ("alike", COUPLED_ADJUSTED)],
    ids=["alike", "random", "no draft", "adjusted logits"],
)
async def test_coupled(draft: str | None, options: dict[str, Any], target: Path, drafts: dict[str, Path]) -> None:
    async with running_pair(engine_config(target, deterministic=True, cache="paged")) as pair:
        expected = await alone(pair, 0, options)
    config = engine_config(drafts[draft]) if draft else None
    async with running_pair(engine_config(target, deterministic=True), config) as pair:
        for k in (0, 1, 3, 8):
            assert await alone(pair, k, options) == expected, f"alone, K = {k}"
            assert await among_others(pair, k, options) == expected, f"among others, K = {k}"
        await pair.check_clean()


async def test_without_it_company_changes_bits(target: Path, drafts: dict[str, Path]) -> None:
    """The control: the comparison above can fail. The native runner's rows have the same bits in any company."""
    async with running_pair(engine_config(target, runner="fused"), engine_config(drafts["alike"])) as pair:
        assert await among_others(pair, 5, GREEDY) != await alone(pair, 0, GREEDY)


async def test_the_pair_says_that_its_target_is_deterministic(target: Path, drafts: dict[str, Path]) -> None:
    async with running_pair(engine_config(target, deterministic=True), engine_config(drafts["alike"])) as pair:
        described = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert described.target.deterministic and not described.draft.deterministic
    cells = {str(column.header): dict(enumerate(column.cells)) for column in info_table(described, "here").columns}
    (row,) = (i for i, cell in cells[""].items() if cell == "deterministic")
    assert (cells["draft"][row], cells["target"][row]) == ("no", "yes")
