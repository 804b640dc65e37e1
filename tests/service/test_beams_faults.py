"""A beam search survives services that forget its sequences, a target that dies, and a draft that dies."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.outputs.beam_outputs import BeamOutputs
from coordinator.pair import Pair, connect_pair
from coordinator.requests.request import GenerationRequest
from specpair.options import SamplingOptions
from specpair.server.config import ServerConfig
from specpair.speculation.beams.beam_options import BeamOptions
from target_service.tree_scorer import TreeScorer
from tests.service.test_beams import EOS, LENGTH, expected, prompts
from tests.services import RunningModel, engine_config, running_draft, running_target
from tests.tiny_models import load_plain, make_model, make_variation

PROMPTS = prompts(4)


class Cluster:
    """Two targets, one draft, and a coordinator's connections to them."""

    def __init__(self, pair: Pair, targets: list[RunningModel], draft: RunningModel, model: Any):
        self.pair = pair
        self.targets = targets
        self.draft = draft
        self.model = model

    async def search(self, prompt: list[int]) -> list[int]:
        stops = frozenset([EOS])
        request = GenerationRequest(
            prompt_ids=tuple(prompt),
            sampling=SamplingOptions(temperature=0.0, stop_token_ids=(EOS,)),
            max_tokens=LENGTH,
            num_speculative_tokens=2,
            beams=BeamOptions(num_beams=4, max_tokens=LENGTH, stop_token_ids=stops),
        )
        tokens: list[int] = []
        async for part in BeamOutputs(request, self.pair).parts():
            tokens += part.part.token_ids
        return tokens

    def right(self, prompt: list[int]) -> list[int]:
        return expected(self.model, prompt, 4)[0]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    target = make_model(tmp_path / "target")
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    async with AsyncExitStack() as stack:
        targets = [await stack.enter_async_context(running_target(engine_config(target))) for _ in range(2)]
        drafting = await stack.enter_async_context(running_draft(engine_config(draft)))
        config = CoordinatorConfig(
            server=ServerConfig(port=0),
            target_addresses=tuple(model.address for model in targets),
            draft_addresses=(drafting.address,),
            draft_cooldown=0.001,
        )
        pair = await stack.enter_async_context(connect_pair(config))
        yield Cluster(pair, targets, drafting, load_plain(target))


@contextmanager
def after_calls(monkeypatch: pytest.MonkeyPatch, happens: Callable[[Any, int], Any]) -> Iterator[list[int]]:
    """`happens` is awaited before each pass of a target, with the scorer that is asked and the number of the call."""
    score, calls = TreeScorer.score, list[int]()

    async def counted(scorer: TreeScorer, call: Any, body: bytes) -> Any:
        calls.append(call.step)
        answer = await score(scorer, call, body)
        await happens(scorer, len(calls))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(TreeScorer, "score", counted)
        yield calls


async def test_services_that_forget(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are lost with their sequences: they are opened again, and the pass is asked again."""

    async def forget(scorer: Any, number: int) -> None:
        if number % 3 == 0:
            for model in cluster.targets:
                model.host.sequences.close_all()
        if number % 4 == 0:
            cluster.draft.host.sequences.close_all()

    with after_calls(monkeypatch, forget) as calls:
        for prompt in PROMPTS:
            assert await cluster.search(prompt) == cluster.right(prompt)
    assert len(calls) > len(set(calls)), "passes were asked again"


async def test_a_target_that_dies(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of its third pass never comes, nor does any other: the search goes on at the other target."""
    dead: list[asyncio.Task[None]] = []

    async def die(scorer: Any, number: int) -> None:
        if number == 3:
            [model] = [model for model in cluster.targets if getattr(model.host, "trees", None) is scorer]
            dead.append(asyncio.create_task(model.stop()))  # apart from this call, which it cancels
            await asyncio.Event().wait()

    with after_calls(monkeypatch, die):
        for prompt in PROMPTS:
            assert await cluster.search(prompt) == cluster.right(prompt)
    assert dead
    await asyncio.gather(*dead)
    assert sum(cluster.pair.target.recoveries.values())


async def test_a_draft_that_dies(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes on without candidates."""

    async def die(scorer: Any, number: int) -> None:
        if number == 3:
            await cluster.draft.stop()

    with after_calls(monkeypatch, die) as calls:
        for prompt in PROMPTS[:2]:
            assert await cluster.search(prompt) == cluster.right(prompt)
    assert len(calls) > LENGTH, "without candidates each token takes a pass"
