"""Working ahead over the wire: the same bits, whether proposals and verdicts come ahead or not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_models import make_model, make_variation

VOCABULARY = 64
COUNT = 48
PROMPTS = ([5, 2, 7, 2, 11], [3, 1], [9, 9, 9, 4])
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
ON, OFF = pb.WORK_AHEAD_MODE_ON, pb.WORK_AHEAD_MODE_OFF
FIXED = {"num_speculative_tokens": 4}
CASES: list[dict[str, Any]] = [
    {"rule": RULES["coupled"], "temperature": 1.0, **FIXED},
    {"rule": RULES["coupled"], "temperature": 1.0},
    {"rule": RULES["block"], "temperature": 0.0, **FIXED},
    {"rule": RULES["block"], "temperature": 0.0},
    {"rule": RULES["token"], "temperature": 0.8, **FIXED},
    {"rule": RULES["block"], "temperature": 1.0, **FIXED},
    {"rule": RULES["block"], "temperature": 1.0, "encoding": sampling_pb2.DISTRIBUTION_ENCODING_DENSE, **FIXED},
    {"rule": RULES["block"], "temperature": 0.7, "frequency_penalty": 0.5, "logprobs": 1, **FIXED},
]


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=VOCABULARY)
    draft = make_variation(folder / "draft", target, spread=0.1)
    async with running_pair(engine_config(target, deterministic=True), engine_config(draft)) as running:
        yield running
        await running.check_clean()


async def outputs(pair: RunningPair, mode: pb.WorkAheadMode, case: dict[str, Any]) -> list[Generated]:
    requests = (pair.generate(prompt, COUNT, seed=seed, work_ahead=mode, **case) for seed, prompt in enumerate(PROMPTS))
    return list(await asyncio.gather(*requests))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
async def test_the_output_is_the_same_bits_with_and_without(pair: RunningPair, case: dict[str, Any]) -> None:
    without, ahead = await outputs(pair, OFF, case), await outputs(pair, ON, case)
    assert [output.token_ids for output in ahead] == [output.token_ids for output in without]
    used = sum(o.summary.speculation.ahead_hit_count + o.summary.speculation.ahead_late_count for o in ahead)
    if "num_speculative_tokens" in case:
        assert used > 0
        assert not any(o.summary.speculation.ahead_hit_count for o in without)
