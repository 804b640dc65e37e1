"""A pair whose target and draft are quantised checkpoints writes what the target writes alone."""

import asyncio
from pathlib import Path

import pytest

from tests.quantized_models import SHAPE, write_quantized
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model, make_variation

pytestmark = pytest.mark.filterwarnings("default")  # packages warn about themselves
PROMPTS = [[1], [5, 9, 2], list(range(3, 20)), list(range(60, 27, -1))]
COUNT = 24
KINDS = [
    pytest.param("fp8", False, marks=pytest.mark.needs("accelerate")),
    pytest.param("int4 compressed", False, marks=pytest.mark.needs("compressed-tensors")),
    # Rounding of inputs makes near-ties likelier than in other models: exactly the same only if deterministic.
    pytest.param("int8 compressed", True, marks=pytest.mark.needs("compressed-tensors")),
]


@pytest.mark.parametrize(("kind", "deterministic"), KINDS)
async def test_greedy_output_is_the_targets_own(kind: str, deterministic: bool, tmp_path: Path) -> None:
    plain = make_model(tmp_path / "plain", seed=3, **SHAPE)
    target = write_quantized(tmp_path / "target", plain, kind)
    draft = write_quantized(tmp_path / "draft", make_variation(tmp_path / "alike", plain, spread=0.03), kind)
    config = engine_config(target, deterministic=deterministic)
    async with running_pair(config, engine_config(draft)) as pair:
        expected = [(await pair.generate(p, COUNT, temperature=0, num_speculative_tokens=0)).token_ids for p in PROMPTS]
        accepted = 0
        for count in (1, 3, 5):
            calls = [pair.generate(p, COUNT, temperature=0, num_speculative_tokens=count) for p in PROMPTS]
            outputs = await asyncio.gather(*calls)
            assert [output.token_ids for output in outputs] == expected, f"K = {count}"
            accepted += sum(output.summary.speculation.accepted_token_count for output in outputs)
        await pair.check_clean()
    assert accepted > 0, "nothing was ever accepted: the test says little"
