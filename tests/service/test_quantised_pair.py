"""A pair with quantised weights: the outputs are those of its quantised target, whatever the draft is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from command.exactness.run import describe, verify
from specpair.exactness.plan import Settings
from specpair.exactness.report import Verdict
from specpair.models.packed_linear import offers_fbgemm
from specpair.options import SamplingOptions
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.services import RunningPair, engine_config, running_pair

pytestmark = [pytest.mark.skipif(not offers_fbgemm(), reason="FBGEMM is for x86"), pytest.mark.timeout(600)]

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
PROMPT = [3, 141, 59, 26, 535, 89, 79]
COUNT = 48
COUPLED = sampling_pb2.ACCEPTANCE_RULE_COUPLED


@pytest.fixture(scope="module")
async def pairs() -> AsyncIterator[dict[str, RunningPair]]:
    """Targets in int8 without a draft, and with one in int4; and one with 16 bits."""
    target = engine_config(BUNDLED / "target", max_model_len=256, quantization="int8")
    draft = engine_config(BUNDLED / "draft", max_model_len=256, quantization="int4")
    plain = engine_config(BUNDLED / "target", max_model_len=256)
    configs = {"alone": (target, None), "int4 draft": (target, draft), "16 bits": (plain, None)}
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(running_pair(*config, draft_timeout=30.0))
            for name, config in configs.items()
        }


async def outputs(pair: RunningPair, k: int) -> list[list[int]]:
    """Greedy and coupled outputs, beside others."""
    prompts = [PROMPT, PROMPT[2:], PROMPT[::-1]]
    calls = [pair.generate(prompt, COUNT, temperature=0.0, seed=1, num_speculative_tokens=k) for prompt in prompts]
    calls += [pair.generate(PROMPT, COUNT, seed=seed, rule=COUPLED, num_speculative_tokens=k) for seed in range(4)]
    return [output.token_ids for output in await asyncio.gather(*calls)]


async def test_an_int4_draft_changes_no_output_of_an_int8_target(pairs: dict[str, RunningPair]) -> None:
    expected = await outputs(pairs["alone"], 0)
    for k in (0, 1, 3, 4, 8):
        assert await outputs(pairs["int4 draft"], k) == expected, k
    assert await outputs(pairs["16 bits"], 0) != expected  # it is another model


async def test_info_and_metrics_say_what_is_served(pairs: dict[str, RunningPair]) -> None:
    pair = pairs["int4 draft"]
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert (info.draft.quantization, info.target.quantization) == ("int4", "int8")
    assert info.target.deterministic
    assert 0 < info.target.divergence.mean_kl < 0.02 < info.draft.divergence.mean_kl
    assert pair.target is not None
    text = generate_latest(pair.target.registry).decode()
    assert 'specpair_model_info{dtype="float32",model="target",quantization="int8"} 1.0' in text
    plain = await pairs["16 bits"].coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert plain.target.quantization == "none" and not plain.target.HasField("divergence")


@pytest.mark.few_cases("int8")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
async def test_verify_exactness_passes(quantization: str) -> None:
    """Every equality to the last token: a quantised target has no near-ties to be excused."""
    target = engine_config(BUNDLED / "target", max_model_len=256, quantization=quantization, max_num_seqs=64)
    draft = engine_config(BUNDLED / "draft", max_model_len=256, quantization="int4", max_num_seqs=64)
    settings = Settings(
        prompts=(tuple(PROMPT),), draws=60, seed=7, option_sets={"plain": SamplingOptions()}, greedy_tokens=32,
        sequences=6, sequence_tokens=16,
    )  # fmt: skip
    async with running_pair(target, draft, draft_timeout=30.0) as pair:
        report = await verify(
            pair.coordinator, await describe(pair.coordinator), settings, alpha=1e-3, concurrency=16,
            show=lambda name, total: lambda: None,
        )  # fmt: skip
    assert report.passed, report
    assert {entry.verdict for entry in report.equalities} == {Verdict.SAME}
