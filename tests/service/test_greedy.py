"""At temperature 0 the pair says, token for token, what transformers `generate` says."""

import asyncio
import random
from pathlib import Path

import pytest

from specpair.engine_config import EngineConfig
from tests.services import engine_config, running_pair
from tests.tiny_models import CONFIGS, generate_greedily, load_plain, make_model

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
BLOCK_LENGTHS = (0, 1, 3, 5, 8)


def prompts(vocab_size: int, lengths: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 21, 34)) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(1, vocab_size) for _ in range(length)] for length in lengths]


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_greedy_equals_generate(kind: str, cache: str, tmp_path: Path) -> None:
    """A draft that is the target with other last weights: some proposals are right, some are not."""
    target = make_model(tmp_path / "target", kind, seed=1)
    draft = make_similar(target, tmp_path / "draft")
    plain = load_plain(target)
    expected = [generate_greedily(plain, prompt, 24) for prompt in prompts(64)]
    accepted = 0
    async with running_pair(engine_config(target, cache=cache), engine_config(draft, cache=cache)) as pair:
        for count in BLOCK_LENGTHS:
            calls = [pair.generate(p, 24, temperature=0, num_speculative_tokens=count) for p in prompts(64)]
            outputs = await asyncio.gather(*calls)
            assert [output.token_ids for output in outputs] == expected, f"K = {count}"
            accepted += sum(output.summary.speculation.accepted_token_count for output in outputs)
        await pair.check_clean()
    assert accepted > 0, "nothing was ever accepted: the test says little"


def make_similar(folder: Path, copy: Path, noise: float = 0.02) -> Path:
    """The model with a little noise on all weights: a draft that is often right."""
    import torch

    model = load_plain(folder)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(copy)
    return copy


async def test_bundled_pair_equals_generate() -> None:
    """The pair that everyone gets, through all K, on text it knows."""
    plain = load_plain(BUNDLED / "target")
    wanted = [p for p in prompts(4096, (1, 3, 9, 20, 40, 64, 100, 150))]
    expected = [generate_greedily(plain, prompt, 32) for prompt in wanted]

    def config(name: str) -> EngineConfig:
        return engine_config(BUNDLED / name, block_size=16)

    async with running_pair(config("target"), config("draft")) as pair:
        for count in BLOCK_LENGTHS:
            calls = [pair.generate(p, 32, temperature=0, num_speculative_tokens=count, ignore_eos=True) for p in wanted]
            outputs = await asyncio.gather(*calls)
            for output, tokens in zip(outputs, expected, strict=True):
                assert output.token_ids[: len(tokens)] == tokens, f"K = {count}"
        await pair.check_clean()
