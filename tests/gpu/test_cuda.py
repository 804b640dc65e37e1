"""The engine on a GPU: run by `make test-gpu` where there is one."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specpair.engine.pass_clock import CudaClock
from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from tests.reference import coupled_choice, plain_loop
from tests.service.test_greedy import make_similar, prompts
from tests.service.test_options import OPTIONS, PROMPT, RULES, VOCABULARY, until_stop
from tests.services import engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model, make_variation
from tests.unit.specpair.models.test_aligned_runner import check_all_ways

pytestmark = [pytest.mark.gpu, pytest.mark.needs("CUDA")]


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


@pytest.mark.parametrize("utilization", [0.1, 0.3])
async def test_a_process_keeps_to_its_share_of_the_gpu(utilization: float, tmp_path: Path) -> None:
    """With a cache that would take all of it."""
    folder = make_model(tmp_path / "model", max_position_embeddings=2**20)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    config = engine_config(
        folder, device="cuda:0", block_size=1024, max_num_seqs=60000, gpu_memory_utilization=utilization
    )
    async with running_pair(config) as pair:
        await pair.generate([1, 2, 3], 8)
        share = torch.cuda.max_memory_reserved() / torch.cuda.mem_get_info()[1]
        assert 0.8 * utilization < share <= utilization


async def test_passes_that_nobody_waits_for_have_their_own_time(tmp_path: Path) -> None:
    """A long prompt is fed in passes whose logits nobody looks at: their time is the device's, not that of a call."""
    folder = make_model(tmp_path / "model", hidden_size=1024, intermediate_size=4096, max_position_embeddings=8192)
    config = engine_config(folder, device="cuda:0", num_blocks=4096, max_num_batched_tokens=512)
    async with running_pair(config) as pair:
        statistics = pair.target.host.engine.statistics
        await pair.generate([1, 2, 3], 2)
        before, counted = statistics.forward_time.total, sum(statistics.forward_time.counts)
        started = time.perf_counter()
        await pair.generate([1 + i % 60 for i in range(4096)], 1)
        elapsed = time.perf_counter() - started
        assert sum(statistics.forward_time.counts) - counted >= 8
        assert 0.1 * elapsed < statistics.forward_time.total - before <= elapsed


def test_a_pass_is_recorded_once_the_device_has_done_it() -> None:
    clock, seconds = CudaClock(torch.device("cuda:0")), []
    matrix = torch.ones(8192, 8192, device="cuda:0")
    torch.cuda.synchronize()
    clock.begin()
    for _ in range(20):
        torch.mm(matrix, matrix)
    clock.end(seconds.append)
    clock.settle()
    assert seconds == [], "the device is at it still"
    torch.cuda.synchronize()
    clock.settle()
    assert len(seconds) == 1 and seconds[0] > 0.005
