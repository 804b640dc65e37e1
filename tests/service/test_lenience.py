"""Lenience through the services: more is accepted, the output changes, and the answer says so."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from specpair.v1 import sampling_pb2
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_models import make_model

PROMPT = [5, 2, 7, 2, 11]


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningPair]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=24, initializer_range=0.25)
    draft = make_model(folder / "draft", seed=2, vocab_size=24, initializer_range=0.25)
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield pair


async def generate(pair: RunningPair, temperature: float, **fields: Any) -> Generated:
    return await pair.generate(
        PROMPT,
        60,
        temperature=temperature,
        seed=3,
        rule=sampling_pb2.ACCEPTANCE_RULE_TOKEN,
        num_speculative_tokens=3,
        **fields,
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_lenience_accepts_more_and_says_that_it_is_lossy(pair: RunningPair, temperature: float) -> None:
    exact = await generate(pair, temperature)
    same = await generate(pair, temperature, lenience=1.0)
    lossy = await generate(pair, temperature, lenience=0.05)
    assert same.token_ids == exact.token_ids != lossy.token_ids
    assert lossy.summary.speculation.acceptance_rate > exact.summary.speculation.acceptance_rate + 0.1
    assert [output.summary.speculation.lossy for output in (exact, same, lossy)] == [False, False, True]
    assert lossy.summary.speculation.lenience == pytest.approx(0.05)


async def test_plain_decoding_is_never_lossy_in_effect(pair: RunningPair) -> None:
    """Without proposals there is nothing to be lenient about."""
    plain = await pair.generate(PROMPT, 40, seed=3, num_speculative_tokens=0, temperature=1.0)
    lenient = await pair.generate(PROMPT, 40, seed=3, num_speculative_tokens=0, temperature=1.0, lenience=0.1)
    assert plain.token_ids == lenient.token_ids
