"""A pair whose runner captures its passes: the same outputs, rollbacks and all, and it says so."""

import asyncio
from pathlib import Path

import pytest

from specpair.rpc.messages import model_info_from_proto, model_info_to_proto
from tests.service.test_greedy import make_similar, prompts
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

CAPTURED = {"runner": "captured", "cache": "paged", "num_blocks": 256}


@pytest.mark.parametrize("deterministic", [False, True])
async def test_greedy_outputs_equal_generate(deterministic: bool, tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", "qwen3", seed=1)
    draft = make_similar(target, tmp_path / "draft")
    plain = load_plain(target)
    some = prompts(64)[:4]
    expected = [generate_greedily(plain, prompt, 16) for prompt in some]
    configs = [engine_config(folder, deterministic=deterministic, **CAPTURED) for folder in (target, draft)]
    async with running_pair(*configs) as pair:
        info = model_info_from_proto(model_info_to_proto(pair.target.host.info()))
        assert info.runner == "captured in fixed shapes, without CUDA graphs, attention over gathered keys"
        for count in (0, 4):
            calls = [pair.generate(p, 16, temperature=0, num_speculative_tokens=count) for p in some]
            assert [output.token_ids for output in await asyncio.gather(*calls)] == expected
        assert not any(pair.target.host.engine.statistics.graph_misses.values())
        await pair.check_clean()
