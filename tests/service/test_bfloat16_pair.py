"""A pair in bf16, as the bundled checkpoints are served by default where the native runner computes it: speculation
changes no token of its outputs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from command.exactness.run import describe, verify
from specpair.exactness.plan import Settings
from specpair.exactness.report import Verdict
from specpair.models.device_defaults import choose_device, choose_dtype
from specpair.models.folder_checkpoint import FolderCheckpoint
from specpair.options import SamplingOptions
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.services import RunningPair, engine_config, running_pair

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
TARGET = engine_config(BUNDLED / "target", dtype="auto", max_model_len=256, max_num_seqs=64)
DRAFT = engine_config(BUNDLED / "draft", dtype="auto", max_model_len=256, max_num_seqs=64)
PROMPT = [3, 141, 59, 26, 535, 89, 79]
COUNT = 48
COUPLED = sampling_pb2.ACCEPTANCE_RULE_COUPLED


def serves_bfloat16() -> bool:
    settings = FolderCheckpoint(TARGET.model).settings()
    return choose_dtype(TARGET, settings, choose_device("cpu")).itemsize == 2


pytestmark = [
    pytest.mark.skipif(not serves_bfloat16(), reason="no units for bf16, or no compiler"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_pair(TARGET, DRAFT, draft_timeout=30.0) as pair:
        yield pair


async def outputs(pair: RunningPair, k: int) -> list[list[int]]:
    """Greedy and coupled outputs, beside others."""
    prompts = [PROMPT, PROMPT[2:], PROMPT[::-1]]
    calls = [pair.generate(prompt, COUNT, temperature=0.0, seed=1, num_speculative_tokens=k) for prompt in prompts]
    calls += [pair.generate(PROMPT, COUNT, seed=seed, rule=COUPLED, num_speculative_tokens=k) for seed in range(4)]
    return [output.token_ids for output in await asyncio.gather(*calls)]


async def test_both_are_in_bfloat16(pair: RunningPair) -> None:
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert (info.draft.dtype, info.target.dtype) == ("bfloat16", "bfloat16")


async def test_proposals_change_no_output(pair: RunningPair) -> None:
    expected = await outputs(pair, 0)
    for k in (1, 3, 4, 8):
        assert await outputs(pair, k) == expected, k


async def test_verify_exactness_passes(pair: RunningPair) -> None:
    """Every equality to the last token: rows of the native runner have no near-ties to be excused."""
    settings = Settings(
        prompts=(tuple(PROMPT),), draws=60, seed=7, option_sets={"plain": SamplingOptions()}, greedy_tokens=32,
        sequences=6, sequence_tokens=16,
    )  # fmt: skip
    report = await verify(
        pair.coordinator, await describe(pair.coordinator), settings, alpha=1e-3, concurrency=16,
        show=lambda name, total: lambda: None,
    )  # fmt: skip
    assert report.passed, report
    assert {entry.verdict for entry in report.equalities} == {Verdict.SAME}
