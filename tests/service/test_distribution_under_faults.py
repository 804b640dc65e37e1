"""Sampled text is distributed as the target's own also where services forget, and where clients resume.

Greedy and coupled outputs are compared token for token elsewhere; under the block and token rules a second judgement
may come out otherwise, so it is their distribution that has to hold.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from coordinator.outputs.generation import Generation
from specpair.errors import SequenceNotFoundError
from specpair.rpc.messages import sampling_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from tests.service.distributions import FEWER, PLAIN, PROMPT, RULES, Served, draw, p_value
from tests.services import RunningModel, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

SAMPLES = 400
MOST_TOKENS = 5


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": 4, "num_hidden_layers": 2, "initializer_range": 0.35}
    target, draft = make_model(folder / "target", seed=3, **shape), make_model(folder / "draft", seed=4, **shape)
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@contextmanager
def forgetting(model: RunningModel, method: str, every: int) -> Iterator[list[str]]:
    """Every so many calls the answer is computed and lost, and the sequence with it. Gives the ids that were lost."""
    host: Any = model.host
    answer, call_count, lost = getattr(host, method), 0, list[str]()

    async def forget(call: Any, body: object, *sequel: Any) -> Any:
        nonlocal call_count
        answered = await answer(call, body, *sequel)
        call_count += 1
        if call_count % every:
            return answered
        await host.close(call.sequence_id)
        lost.append(call.sequence_id)
        raise SequenceNotFoundError(call.sequence_id)

    setattr(host, method, forget)
    try:
        yield lost
    finally:
        delattr(host, method)


@pytest.mark.few_cases("block")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", ["token", "block"])
async def test_services_that_forget_bend_nothing(served: Served, rule: str) -> None:
    assert served.pair.draft is not None
    with forgetting(served.pair.target, "verify", 3) as lost, forgetting(served.pair.draft, "propose", 4) as forgotten:
        counts = await draw(served.pair, PLAIN, SAMPLES, rule=RULES[rule])
    assert len(lost) > SAMPLES / 4 and len(forgotten) > SAMPLES / 8
    for length in (2, 3, 4):
        assert p_value(counts, served.model, PLAIN, length) > 1e-5, f"{length} tokens"


async def resumed(served: Served, seed: int, most_left: int, **fields: Any) -> tuple[int, ...]:
    """An output whose client leaves behind one of its first `most_left` tokens, and asks for the rest."""
    request = pb.GenerateTokensRequest(
        token_ids=pb.TokenIds(ids=PROMPT),
        max_tokens=MOST_TOKENS,
        num_speculative_tokens=3,
        sampling=sampling_to_proto(replace(PLAIN, seed=seed)),
        **fields,
    )
    call = served.pair.coordinator.GenerateTokens(request)
    async for response in call:
        request.resumed_token_ids.extend(token.id for token in response.tokens)
        if len(request.resumed_token_ids) > seed % most_left:
            break
    call.cancel()
    tokens = list(request.resumed_token_ids)
    if len(tokens) < MOST_TOKENS:
        async for response in served.pair.coordinator.GenerateTokens(request):
            tokens += [token.id for token in response.tokens]
    return tuple(tokens)


async def draw_resumed(served: Served, samples: int, most_left: int, **fields: Any) -> Counter[tuple[int, ...]]:
    gate = asyncio.Semaphore(16)

    async def one(seed: int) -> tuple[int, ...]:
        async with gate:
            return await resumed(served, seed, most_left, **fields)

    return Counter(await asyncio.gather(*(one(seed) for seed in range(samples))))


@pytest.mark.few_cases()
@pytest.mark.timeout(600)
async def test_clients_that_resume_bend_nothing(served: Served) -> None:
    counts = await draw_resumed(served, SAMPLES, 3, rule=RULES["block"])
    for length in (2, 3, 4):
        assert p_value(counts, served.model, PLAIN, length) > 1e-5, f"{length} tokens"


@pytest.mark.few_cases()
@pytest.mark.timeout(600)
async def test_noise_that_is_used_again_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: what is resumed behind the first token begins with its step."""
    monkeypatch.setattr(Generation, "_first_step", 0)
    counts = await draw_resumed(served, FEWER, 1, rule=RULES["block"])
    assert p_value(counts, served.model, PLAIN, 2) < 1e-12
