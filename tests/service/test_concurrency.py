"""Many requests at once, with cancels: each gives what it gives alone, and nothing is left behind."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.service.test_greedy import make_similar
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

REQUESTS = 32


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", "llama", seed=5)
    return target, make_similar(target, folder / "draft")


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_mixed_load(models: tuple[Path, Path], cache: str) -> None:
    """Different K, lengths and temperatures, some cancelled at random; the greedy ones are compared."""
    target, draft = models
    plain = load_plain(target)
    chance = random.Random(1)
    prompts = [[chance.randrange(64) for _ in range(chance.randint(1, 40))] for _ in range(REQUESTS)]
    counts = [chance.randint(5, 40) for _ in range(REQUESTS)]
    async with running_pair(
        engine_config(target, cache=cache, max_num_batched_tokens=48), engine_config(draft, cache=cache)
    ) as pair:
        chance.shuffle(order := list(range(REQUESTS)))
        outputs = await asyncio.gather(*(run(pair, i, prompts[i], counts[i], random.Random(i)) for i in order))
        by_index = dict(zip(order, outputs, strict=True))
        await pair.check_clean()
    compared = 0
    for i in range(REQUESTS):
        expected = generate_greedily(plain, prompts[i], counts[i])
        tokens, is_greedy, is_whole = by_index[i]
        if is_greedy:
            assert tokens == expected[: len(tokens)]
            assert not is_whole or len(tokens) == counts[i]
            compared += is_whole
    assert compared >= REQUESTS // 4


async def run(
    pair: RunningPair, index: int, prompt: list[int], count: int, chance: random.Random
) -> tuple[list[int], bool, bool]:
    """The tokens that came, whether they are greedy, whether the request ran to its end."""
    is_greedy = index % 4 != 3
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=prompt),
        max_tokens=count,
        num_speculative_tokens=chance.randint(0, 8),
        sampling={"temperature": 0.0 if is_greedy else 1.0, "seed": index},
    )
    call = pair.coordinator.GenerateTokens(request)
    cancelled_after = chance.randint(1, 12) if index % 5 == 2 else None
    tokens: list[int] = []
    with suppress(asyncio.CancelledError):
        async for response in call:
            tokens += [token.id for token in response.tokens]
            if cancelled_after is not None and len(tokens) >= cancelled_after:
                call.cancel()
                return tokens, is_greedy, False
    return tokens, is_greedy, True


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
async def test_too_small_a_cache_costs_time_not_tokens(models: tuple[Path, Path], cache: str) -> None:
    """Eight requests in a cache that holds about two: caches are taken away and computed again."""
    target, draft = models
    plain = load_plain(target)
    prompts = [[i + 1] * 12 for i in range(8)]
    small = {"cache": cache, "num_blocks": 18, "max_model_len": 36}  # of 4 tokens; a request needs up to 9 of them
    async with running_pair(engine_config(target, **small), engine_config(draft, **small)) as pair:
        outputs = await asyncio.gather(*(pair.generate(p, 20, temperature=0) for p in prompts))
        await pair.check_clean()
    assert [output.token_ids for output in outputs] == [generate_greedily(plain, p, 20) for p in prompts]


async def test_the_same_prompt_twice_shares_its_blocks(models: tuple[Path, Path]) -> None:
    target, _ = models
    async with running_pair(engine_config(target, cache="paged")) as pair:
        prompt = list(range(40))
        first = await pair.generate(prompt, 4, temperature=0)
        await pair.check_clean()
        kept = pair.target.host.engine.cache.open([*prompt, 1])
        assert kept.length == 40
        pair.target.host.engine.cache.free(kept)
        second = await pair.generate(prompt, 4, temperature=0)
        assert first.token_ids == second.token_ids


async def test_a_seed_repeats(models: tuple[Path, Path]) -> None:
    """The same seed and K give the same sampled tokens, alone and among others."""
    target, draft = models
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        alone = await pair.generate([1, 2, 3], 20, seed=9, num_speculative_tokens=4)
        among = await asyncio.gather(
            *(pair.generate([1, 2, 3], 20, seed=seed, num_speculative_tokens=4) for seed in (7, 8, 9, 10))
        )
        assert among[2].token_ids == alone.token_ids
        assert among[1].token_ids != alone.token_ids
        unseeded = await pair.generate([1, 2, 3], 20, num_speculative_tokens=4)
        repeated = await pair.generate([1, 2, 3], 20, seed=unseeded.summary.seed, num_speculative_tokens=4)
        assert repeated.token_ids == unseeded.token_ids
