"""Captured passes on a GPU: run by `make test-gpu` where there is one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from specpair.models.captured_runner import CapturedRunner
from specpair.models.load_runner import load_runner
from tests.service.test_greedy import make_similar, prompts
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model
from tests.unit.specpair.models.test_aligned_runner import (
    among_others,
    at_once,
    one_by_one,
    random_ids,
    with_rollbacks,
)
from tests.unit.specpair.models.test_captured_runner import KINDS, random_passes

pytestmark = [pytest.mark.gpu, pytest.mark.needs("CUDA")]

ON_GPU: dict[str, Any] = {"device": "cuda:0", "cache": "paged", "num_blocks": 512}
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.05}


def load(folder: Path, runner: str, **changes: Any) -> Any:
    return load_runner(engine_config(folder, **{**ON_GPU, "runner": runner, **changes}))[1]


def of_width_64(folder: Path, kind: str) -> Path:
    """A model of the usual width of a head. Larger weights would make rounding to bfloat16 decide its logits."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    return make_model(folder, kind, hidden_size=256, initializer_range=0.08, **heads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_those_of_the_plain_runner(kind: str, dtype: str, tmp_path: Path) -> None:
    """With rollbacks, forks and blocks that were used before; each bucket is captured once and then repeated."""
    folder = of_width_64(tmp_path, kind)
    captured = load(folder, "captured", dtype=dtype)
    expected = random_passes(load(folder, "plain", dtype=dtype), seed=1, most_rows=6)
    for _ in range(2):
        for actual, plain in zip(random_passes(captured, seed=1, most_rows=6), expected, strict=True):
            assert (actual - plain).abs().max() <= TOLERANCE[dtype] * plain.abs().max().clamp(min=1.0)
    assert not captured.misses and captured.description.startswith("captured in CUDA graphs")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deterministic_logits_are_the_same_bits(dtype: str, tmp_path: Path) -> None:
    folder = of_width_64(tmp_path, "llama")
    runner, ids = load(folder, "captured", dtype=dtype, deterministic=True), random_ids()
    expected = at_once(runner, ids)
    for way in (one_by_one, with_rollbacks, among_others):
        assert torch.equal(way(runner, ids), expected), way.__name__


async def test_auto_captures_and_greedy_outputs_equal_generate(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", seed=1)
    draft = make_similar(target, tmp_path / "draft")
    plain = load_plain(target)
    expected = [generate_greedily(plain, prompt, 24) for prompt in prompts(64)]
    async with running_pair(engine_config(target, **ON_GPU), engine_config(draft, **ON_GPU)) as pair:
        assert pair.target.host.info().runner.startswith("captured in CUDA graphs")
        for count in (0, 3, 8):
            calls = [pair.generate(p, 24, temperature=0, num_speculative_tokens=count) for p in prompts(64)]
            assert [output.token_ids for output in await asyncio.gather(*calls)] == expected
        await pair.check_clean()


def test_quantised_and_other_models_stay_plain(tmp_path: Path) -> None:
    assert not isinstance(load(make_model(tmp_path, "gemma2"), "auto"), CapturedRunner)
