"""Adaptive K through the real services: the lengths of proposals change, the text does not."""

import asyncio
from pathlib import Path

import pytest

from specpair.engine_config import pace_of
from specpair.v1 import sampling_pb2
from tests.service.test_greedy import make_similar
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPTS = [[1, 2, 3], [9, 8, 7, 6], [5] * 12, [40, 30, 20]]
LENGTH = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=5)
    return target, make_similar(target, folder / "draft")


async def test_greedy_output_is_the_targets(models: tuple[Path, Path]) -> None:
    """Unless a request says how many tokens to propose, that is decided round by round, and reported. The target is
    paced, so that proposals pay: where none can, none is asked for."""
    target, draft = models
    plain = load_plain(target)
    async with running_pair(engine_config(target, pace=pace_of("25")), engine_config(draft)) as pair:
        outputs = await asyncio.gather(*(pair.generate(prompt, LENGTH, temperature=0) for prompt in PROMPTS * 3))
        await pair.check_clean()
    for prompt, output in zip(PROMPTS * 3, outputs, strict=True):
        assert output.token_ids == generate_greedily(plain, prompt, LENGTH)
        assert output.summary.speculation.adaptive
    speculation = [output.summary.speculation for output in outputs]
    assert sum(summary.draft_token_count for summary in speculation) > 0
    per_round = {summary.draft_token_count / summary.round_count for summary in speculation}
    assert len(per_round) > 1


async def test_coupled_output_does_not_depend_on_it(models: tuple[Path, Path]) -> None:
    target, draft = models
    options = {"rule": sampling_pb2.ACCEPTANCE_RULE_COUPLED, "temperature": 1.0, "seed": 7}
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        plain = await pair.generate(PROMPTS[0], LENGTH, num_speculative_tokens=0, **options)
        outputs = await asyncio.gather(*(pair.generate(PROMPTS[0], LENGTH, **options) for _ in range(6)))
    assert not plain.summary.speculation.adaptive
    assert all(output.token_ids == plain.token_ids for output in outputs)
