"""Connects to the services of a pair as configured."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from coordinator.config import CoordinatorConfig
from coordinator.peers.ahead_blocks import BlockFate, BlockInbox
from coordinator.peers.breaker import Breaker
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.drafts import DraftLink, Drafts
from coordinator.peers.news import News
from coordinator.peers.target_model import TargetModel
from coordinator.peers.target_peer import TargetPeer
from coordinator.peers.targets import TargetLink, Targets
from coordinator.requests.chat_template_file import read_chat_template
from specpair.errors import PeerUnavailableError

TARGET_COOLDOWN = 1.0
"""Seconds without calls to a target that did not answer, if there is another."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect_targets(config: CoordinatorConfig) -> AsyncIterator[Targets]:
    """The targets, once one is available. Raises what Pool.wait_until_there does, and InvalidFieldError for
    certificates, tokens and a chat template that cannot be used."""
    async with _targets(config).watched() as targets:
        await targets.wait_until_there(config.startup_timeout)
        yield targets


@asynccontextmanager
async def connect_drafts(config: CoordinatorConfig, model: TargetModel) -> AsyncIterator[dict[str, Drafts]]:
    """The drafts for targets of this model, by their names, whether or not they are available in time; none if none is
    configured.

    Raises VocabularyMismatchError if a draft does not fit the pair.
    """
    async with AsyncExitStack() as stack:
        drafts = {
            name: await stack.enter_async_context(_drafts(config, addresses, model).watched())
            for name, addresses in config.drafts.addresses.items()
        }
        await asyncio.gather(*(_wait_for(own, config.draft_startup_timeout) for own in drafts.values()))
        yield drafts


async def _wait_for(drafts: Drafts, within: float) -> None:
    try:
        await drafts.wait_until_there(within)
    except PeerUnavailableError as error:
        logger.warning("serving without a draft: %s", error.message)


def _targets(config: CoordinatorConfig) -> Targets:
    model = TargetModel(None if config.chat_template is None else read_chat_template(config.chat_template))

    def make(address: str, news: News) -> TargetLink:
        breaker = Breaker(TARGET_COOLDOWN, config.target_timeout)
        return TargetLink(TargetPeer(address, config.peer_security), breaker, news, model)

    return Targets(config.target_addresses, make, model)


def _drafts(config: CoordinatorConfig, addresses: Sequence[str], model: TargetModel) -> Drafts:
    block_counts = dict.fromkeys(BlockFate, 0)

    def make(address: str, news: News) -> DraftLink:
        breaker = Breaker(config.draft_cooldown, config.draft_timeout)
        return DraftLink(DraftPeer(address, config.peer_security, BlockInbox(block_counts)), breaker, news, model)

    return Drafts(addresses, make, block_counts)
