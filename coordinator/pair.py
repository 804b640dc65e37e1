"""The pair that a coordinator serves: connections, models, vocabulary."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from prometheus_client.registry import CollectorRegistry

from coordinator.adaptive import LengthController
from coordinator.background import BackgroundTasks
from coordinator.config import CoordinatorConfig
from coordinator.draft_link import DraftLink
from coordinator.metrics import CoordinatorMetrics
from coordinator.peer import DraftPeer, TargetPeer
from coordinator.target_link import TargetLink, connect_target

DRAIN_TIMEOUT = 3.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Draft and target, compared and ready."""

    config: CoordinatorConfig
    target: TargetLink
    draft: DraftLink | None
    lengths: LengthController = field(default_factory=LengthController)
    metrics: CoordinatorMetrics = field(default_factory=CoordinatorMetrics)
    background: BackgroundTasks = field(default_factory=BackgroundTasks)


@asynccontextmanager
async def connect_pair(config: CoordinatorConfig, registry: CollectorRegistry | None = None) -> AsyncIterator[Pair]:
    """Waits for the target, and a shorter while for the draft, and compares their vocabularies.

    Raises PeerUnavailableError without a target, VocabularyMismatchError if the two cannot be a pair. On leaving,
    sequences that are still open are closed. What the pair does is counted in `registry`, if given.
    """
    peer = TargetPeer(config.target_address, config.peer_security)
    try:
        target = await connect_target(peer, config.startup_timeout)
        async with _connect_draft(config, target) as draft:
            pair = Pair(config=config, target=target, draft=draft, metrics=_metrics(registry, target, draft))
            _log_pair(pair)
            try:
                yield pair
            finally:
                await pair.background.drain(DRAIN_TIMEOUT)
    finally:
        await peer.close()


@asynccontextmanager
async def _connect_draft(config: CoordinatorConfig, target: TargetLink) -> AsyncIterator[DraftLink | None]:
    if config.draft_address is None:
        yield None
        return
    peer = DraftPeer(config.draft_address, config.peer_security)
    try:
        draft = DraftLink(peer, target, config)
        await draft.wait_until_checked(config.draft_startup_timeout)
        watcher = asyncio.create_task(draft.watch())
        try:
            yield draft
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
    finally:
        await peer.close()


def _metrics(registry: CollectorRegistry | None, target: TargetLink, draft: DraftLink | None) -> CoordinatorMetrics:
    metrics = CoordinatorMetrics(registry)
    metrics.watch_target(lambda: target.peer.is_connected)
    if draft is not None:
        metrics.watch_draft(lambda: draft.info is not None and draft.peer.is_connected)
    return metrics


def _log_pair(pair: Pair) -> None:
    info = None if pair.draft is None else pair.draft.info
    draft_name = "no draft" if info is None else f"draft {info.model_name}"
    logger.info("%s, target %s", draft_name, pair.target.info.model_name)
