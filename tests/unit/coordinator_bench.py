"""A pair of fakes with a coordinator's links to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from coordinator.choices import Choices
from coordinator.config import CoordinatorConfig
from coordinator.draft_link import DraftLink
from coordinator.generation import Generation
from coordinator.pair import Pair
from coordinator.request import GenerationRequest
from coordinator.target_link import TargetLink
from specpair.errors import PeerUnavailableError
from specpair.options import SamplingOptions
from specpair.rpc.config import ServerConfig
from tests.unit.coordinator_peers import FakeDraft, FakeTarget, continuation, model_info

PROMPT = (5, 17, 3)
AWAY = PeerUnavailableError("away")
CONFIG = CoordinatorConfig(
    server=ServerConfig(port=0),
    target_address="target:1",
    draft_address="draft:1",
    draft_timeout=0.2,
    draft_cooldown=0.001,
    target_timeout=1.0,
)


def request(max_tokens: int = 40, count: int = 4, **changes: object) -> GenerationRequest:
    values: dict[str, object] = {
        "prompt_ids": PROMPT,
        "sampling": SamplingOptions(),
        "max_tokens": max_tokens,
        "num_speculative_tokens": count,
    }
    return GenerationRequest(**{**values, **changes})  # type: ignore[arg-type]


class Bench:
    """A pair of fakes."""

    def __init__(self, pair: Pair, draft: FakeDraft, target: FakeTarget) -> None:
        self.pair = pair
        self.draft = draft
        self.target = target

    def generation(self, max_tokens: int = 40, count: int = 4, **changes: object) -> Generation:
        return Generation(request(max_tokens, count, **changes), self.pair)

    def choices(self, max_tokens: int = 40, count: int = 4, **changes: object) -> Choices:
        return Choices(request(max_tokens, count, **changes), self.pair)

    async def run(self, max_tokens: int = 40, count: int = 4, pause: float = 0.0) -> Generation:
        """Runs to the end and checks what must hold however it went. A pause lets the draft's cool-down pass."""
        generation = self.generation(max_tokens, count)
        async for round_ in generation.rounds():
            assert len(round_.token_ids) == len(round_.origins)
            await asyncio.sleep(pause)
        assert generation.output.token_ids == continuation(PROMPT, max_tokens)
        await self.check_closed()
        return generation

    async def check_closed(self) -> None:
        await self.pair.background.drain(1.0)
        assert not self.target.held
        assert not self.draft.held


@asynccontextmanager
async def bench(*, with_draft: bool = True, target_len: int = 200, draft_len: int = 200) -> AsyncIterator[Bench]:
    target = FakeTarget(model_info(max_model_len=target_len))
    draft = FakeDraft(model_info(max_model_len=draft_len))
    link = TargetLink(target, target.model, None, None)
    draft_link = DraftLink(draft, link, CONFIG)
    await draft_link.check()
    watcher = asyncio.create_task(draft_link.watch())
    pair = Pair(config=CONFIG, target=link, draft=draft_link if with_draft else None)
    try:
        yield Bench(pair, draft, target)
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
