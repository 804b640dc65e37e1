"""A pair of fakes with a coordinator's links to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from coordinator.config import CoordinatorConfig
from coordinator.outputs.choices import Choices
from coordinator.outputs.generation import Generation
from coordinator.outputs.output_part import OutputPart
from coordinator.pair import Pair
from coordinator.peers.breaker import Breaker
from coordinator.peers.drafts import DraftLink, Drafts
from coordinator.peers.target_model import TargetModel
from coordinator.peers.targets import TargetLink, Targets
from coordinator.requests.request import GenerationRequest
from specpair.errors import PeerUnavailableError
from specpair.options import SamplingOptions
from specpair.server.config import ServerConfig
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.fake_peers import FakeDraft, FakeTarget
from tests.unit.coordinator.fake_sequences import model_info

PROMPT = (5, 17, 3)
AWAY = PeerUnavailableError("away")
CONFIG = CoordinatorConfig(
    server=ServerConfig(port=0),
    target_addresses=("target:1",),
    draft_addresses=("draft:1",),
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


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what is about to happen."""
    async with asyncio.timeout(5.0):
        while not condition():
            await asyncio.sleep(0.001)


async def collect(generation: Generation) -> list[OutputPart]:
    """All that an output gives."""
    return [part async for part in generation.parts()]


def targets_of(*fakes: FakeTarget) -> Targets:
    """Links to fake targets, each at an address of its own."""
    model, by_address = TargetModel(), {fake.address: fake for fake in fakes}
    return Targets(
        tuple(by_address),
        lambda address, news: TargetLink(by_address[address], Breaker(0.001, 1.0), news, model),
        model,
    )


def drafts_of(model: TargetModel, *fakes: FakeDraft) -> Drafts:
    """The same of drafts, for targets of this model."""
    by_address = {fake.address: fake for fake in fakes}
    return Drafts(
        tuple(by_address),
        lambda address, news: DraftLink(
            by_address[address], Breaker(CONFIG.draft_cooldown, CONFIG.draft_timeout), news, model
        ),
    )


class Bench:
    """A pair of fakes, or more of them."""

    def __init__(self, pair: Pair, drafts: list[FakeDraft], targets: list[FakeTarget]) -> None:
        self.pair = pair
        self.drafts = drafts
        self.targets = targets
        self.draft = drafts[0]
        self.target = targets[0]

    def generation(self, max_tokens: int = 40, count: int = 4, **changes: object) -> Generation:
        return Generation(request(max_tokens, count, **changes), self.pair)

    def choices(self, max_tokens: int = 40, count: int = 4, **changes: object) -> Choices:
        return Choices(request(max_tokens, count, **changes), self.pair)

    async def run(self, max_tokens: int = 40, count: int = 4, pause: float = 0.0, **changes: object) -> Generation:
        """Runs to the end and checks what must hold however it went. A pause lets the draft's cool-down pass."""
        generation = self.generation(max_tokens, count, **changes)
        async for part in generation.parts():
            assert len(part.token_ids) == len(part.origins)
            await asyncio.sleep(pause)
        assert generation.output.token_ids == continuation(PROMPT, max_tokens)
        await self.check_closed()
        return generation

    async def check_closed(self) -> None:
        await self.pair.background.drain(1.0)
        peers = (*self.targets, *self.drafts)
        assert not any(peer.held for peer in peers)
        for peer in peers:
            assert len(set(peer.names)) == len(peer.names), "a late call would find an opening of the same name"
        links = [*self.pair.target.links.values(), *(self.pair.draft.links.values() if self.pair.draft else ())]
        assert not any(link.sequence_count for link in links)


@asynccontextmanager
async def bench(
    *,
    with_draft: bool = True,
    target_len: int = 200,
    draft_len: int = 200,
    target_count: int = 1,
    draft_count: int = 1,
    config: CoordinatorConfig = CONFIG,
    withholds: bool = False,
    longest_run: int = 0,
) -> AsyncIterator[Bench]:
    """With `withholds` the targets take proposals whose distributions follow; they give runs of `longest_run`."""
    of_target = {
        "max_model_len": target_len,
        "takes_withheld_distributions": withholds,
        "longest_run": longest_run,
    }
    fake_targets = [FakeTarget(model_info(f"t{i}", **of_target), f"target:{i + 1}") for i in range(target_count)]
    fake_drafts = [
        FakeDraft(model_info(f"d{i}", max_model_len=draft_len), f"draft:{i + 1}") for i in range(draft_count)
    ]
    async with AsyncExitStack() as stack:
        targets = await stack.enter_async_context(targets_of(*fake_targets).watched())
        await targets.wait_until_there(1.0)
        drafts = None
        if with_draft:
            drafts = await stack.enter_async_context(drafts_of(targets.model, *fake_drafts).watched())
            await drafts.wait_until_there(1.0)
        while any(not link.is_there for pool in (targets, drafts) if pool for link in pool.links.values()):
            await asyncio.sleep(0)
        yield Bench(Pair(config=config, target=targets, draft=drafts), fake_drafts, fake_targets)
