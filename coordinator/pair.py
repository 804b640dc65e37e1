"""The pair that a coordinator serves: connections, models, vocabulary."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.registry import CollectorRegistry

from coordinator.adaptive import LengthController
from coordinator.background import BackgroundTasks
from coordinator.breaker import Breaker
from coordinator.config import CoordinatorConfig
from coordinator.draft_link import DraftLink
from coordinator.metrics import CoordinatorMetrics, InstanceReading, ServiceReadings
from coordinator.peer import DraftPeer, TargetPeer
from coordinator.pool import Drafts, Pool, Targets
from coordinator.target_link import TargetLink, TargetModel
from specpair.errors import PeerUnavailableError
from specpair.rpc.secured_channel import check_channel_security

DRAIN_TIMEOUT = 3.0
TARGET_COOLDOWN = 1.0
"""Seconds that a target which did not answer is left alone, if there is another."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Drafts and targets, compared and ready."""

    config: CoordinatorConfig
    target: Targets
    draft: Drafts | None
    lengths: LengthController = field(default_factory=LengthController)
    metrics: CoordinatorMetrics = field(default_factory=CoordinatorMetrics)
    background: BackgroundTasks = field(default_factory=BackgroundTasks)


@asynccontextmanager
async def connect_pair(config: CoordinatorConfig, registry: CollectorRegistry | None = None) -> AsyncIterator[Pair]:
    """Waits for a target, and a shorter while for a draft, and compares their vocabularies.

    Raises PeerUnavailableError without a target, VocabularyMismatchError if the two cannot be a pair, InvalidFieldError
    for certificates and tokens that cannot be used. On leaving, sequences that are still open are closed. What the pair
    does is counted in `registry`, if given.
    """
    check_channel_security(config.peer_security)
    model = TargetModel()
    async with watched(_targets(config, model)) as targets:
        await targets.wait_until_there(config.startup_timeout)
        async with _connect_drafts(config, model) as drafts:
            metrics = _metrics(registry, config, targets, drafts)
            pair = Pair(config=config, target=targets, draft=drafts, metrics=metrics)
            _log_pair(pair)
            try:
                yield pair
            finally:
                await pair.background.drain(DRAIN_TIMEOUT)


@asynccontextmanager
async def _connect_drafts(config: CoordinatorConfig, model: TargetModel) -> AsyncIterator[Drafts | None]:
    if not config.draft_addresses:
        yield None
        return
    async with watched(_drafts(config, model)) as drafts:
        try:
            await drafts.wait_until_there(config.draft_startup_timeout)
        except PeerUnavailableError as error:
            logger.warning("serving without a draft: %s", error.message)
        yield drafts


@asynccontextmanager
async def watched(pool: Any) -> AsyncIterator[Any]:
    """The pool while somebody looks after it."""
    watcher = asyncio.create_task(pool.watch())
    try:
        yield pool
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        await pool.close()


def _targets(config: CoordinatorConfig, model: TargetModel) -> Targets:
    def make(address: str, news: Any) -> TargetLink:
        breaker = Breaker(TARGET_COOLDOWN, config.target_timeout)
        return TargetLink(TargetPeer(address, config.peer_security), breaker, news, model)

    return Targets(config.target_addresses, make, model)


def _drafts(config: CoordinatorConfig, model: TargetModel) -> Drafts:
    def make(address: str, news: Any) -> DraftLink:
        breaker = Breaker(config.draft_cooldown, config.draft_timeout)
        return DraftLink(DraftPeer(address, config.peer_security), breaker, news, model)

    return Drafts(config.draft_addresses, make)


def _metrics(
    registry: CollectorRegistry | None, config: CoordinatorConfig, targets: Targets, drafts: Drafts | None
) -> CoordinatorMetrics:
    metrics = CoordinatorMetrics(registry, config.max_num_speculative_tokens)
    metrics.watch_target(lambda: targets.is_there)
    if drafts is not None:
        metrics.watch_draft(lambda: drafts.is_there)
    services = {"target": targets} if drafts is None else {"target": targets, "draft": drafts}
    metrics.watch_instances({name: _readings(pool) for name, pool in services.items()})
    return metrics


def _readings(pool: Pool[Any]) -> ServiceReadings:
    links = pool.links
    return ServiceReadings(
        lambda: [InstanceReading(address, link.is_there, link.sequence_count) for address, link in links.items()],
        pool.recoveries,
    )


def _log_pair(pair: Pair) -> None:
    info = None if pair.draft is None else pair.draft.info
    draft_name = "no draft" if info is None else f"draft {info.model_name}"
    logger.info("%s, target %s", draft_name, pair.target.info.model_name)
