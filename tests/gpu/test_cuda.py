"""The engine on a GPU: run by `make test-gpu` where there is one."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from tests.reference import coupled_choice, plain_loop
from tests.service.test_greedy import make_similar, prompts
from tests.service.test_options import OPTIONS, PROMPT, RULES, VOCABULARY, until_stop
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model, make_variation
from tests.unit.test_engine_deterministic import check_all_ways

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen3"])
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_greedy_equals_generate(kind: str, cache: str, tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", kind, seed=1)
    draft = make_similar(target, tmp_path / "draft")
    plain = load_plain(target)
    expected = [generate_greedily(plain, prompt, 24) for prompt in prompts(64)]
    on_gpu = {"device": "cuda:0", "cache": cache, "num_blocks": 512}
    async with running_pair(engine_config(target, **on_gpu), engine_config(draft, **on_gpu)) as pair:
        for count in (0, 3, 8):
            calls = [pair.generate(p, 24, temperature=0, num_speculative_tokens=count) for p in prompts(64)]
            assert [output.token_ids for output in await asyncio.gather(*calls)] == expected
        await pair.check_clean()


@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen3"])
def test_deterministic_logits_are_the_same_bits(kind: str, tmp_path: Path) -> None:
    check_all_ways(make_model(tmp_path, kind), device="cuda:0", num_blocks=512)


@pytest.mark.parametrize("name", OPTIONS)
async def test_options_equal_a_plain_loop(name: str, tmp_path: Path) -> None:
    """Under the coupled rule, whose noise is the same on every device, with logprobs asked for."""
    target = make_model(tmp_path / "target", seed=1, vocab_size=VOCABULARY, initializer_range=0.3)
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    options = replace(SamplingOptions(seed=11), **OPTIONS[name])
    expected = plain_loop(load_plain(target), PROMPT, options, 12, coupled_choice(11))
    on_gpu = {"device": "cuda:0", "num_blocks": 512}
    async with running_pair(engine_config(target, **on_gpu), engine_config(draft, **on_gpu)) as pair:
        for k in (0, 5):
            output = await pair.generate(
                PROMPT,
                12,
                sampling=sampling_to_proto(options),
                rule=RULES["coupled"],
                num_speculative_tokens=k,
                logprobs=2,
            )
            assert output.token_ids == until_stop(expected, options)


async def test_auto_takes_the_gpu_in_bfloat16(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    load_plain(folder).to(torch.bfloat16).save_pretrained(folder)
    async with running_pair(engine_config(folder, device="auto", dtype="auto", num_blocks=512)) as pair:
        info = pair.target.host.info()
        assert (info.device, info.dtype, info.cache) == ("cuda:0", "bfloat16", "paged")
        assert len((await pair.generate([1, 2, 3], 8)).token_ids) == 8
