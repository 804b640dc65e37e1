"""Connects to the services of a pair as configured."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.config import CoordinatorConfig
from coordinator.peers.ahead_blocks import BlockFate, BlockInbox
from coordinator.peers.breaker import Breaker
from coordinator.peers.draft_peer import DraftPeer
from coordinator.peers.drafts import DraftLink, Drafts
from coordinator.peers.news import News
from coordinator.peers.target_model import TargetModel
from coordinator.peers.target_peer import TargetPeer
from coordinator.peers.targets import TargetLink, Targets
from specpair.errors import PeerUnavailableError

TARGET_COOLDOWN = 1.0
"""Seconds without calls to a target that did not answer, if there is another."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect_targets(config: CoordinatorConfig) -> AsyncIterator[Targets]:
    """The targets, once one is available. Raises what Pool.wait_until_there does, and InvalidFieldError for
    certificates and tokens that cannot be used."""
    async with _targets(config).watched() as targets:
        await targets.wait_until_there(config.startup_timeout)
        yield targets


@asynccontextmanager
async def connect_drafts(config: CoordinatorConfig, model: TargetModel) -> AsyncIterator[Drafts | None]:
    """The drafts for targets of this model, whether or not one is available in time; None if none is configured.

    Raises VocabularyMismatchError if a draft does not fit the pair.
    """
    if not config.draft_addresses:
        yield None
        return
    async with _drafts(config, model).watched() as drafts:
        try:
            await drafts.wait_until_there(config.draft_startup_timeout)
        except PeerUnavailableError as error:
            logger.warning("serving without a draft: %s", error.message)
        yield drafts


def _targets(config: CoordinatorConfig) -> Targets:
    model = TargetModel()

    def make(address: str, news: News) -> TargetLink:
        breaker = Breaker(TARGET_COOLDOWN, config.target_timeout)
        return TargetLink(TargetPeer(address, config.peer_security), breaker, news, model)

    return Targets(config.target_addresses, make, model)


def _drafts(config: CoordinatorConfig, model: TargetModel) -> Drafts:
    block_counts = dict.fromkeys(BlockFate, 0)

    def make(address: str, news: News) -> DraftLink:
        breaker = Breaker(config.draft_cooldown, config.draft_timeout)
        return DraftLink(DraftPeer(address, config.peer_security, BlockInbox(block_counts)), breaker, news, model)

    return Drafts(config.draft_addresses, make, block_counts)
