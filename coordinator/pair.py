"""The pair that a coordinator serves: connections, models, vocabulary."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.registry import CollectorRegistry

from coordinator.adaptive import AheadTrials, BeamLengths, LengthController, Worth
from coordinator.adaptive.withholding import Withholding
from coordinator.background import BackgroundTasks
from coordinator.config import CoordinatorConfig
from coordinator.metrics import AheadReadings, CoordinatorMetrics, InstanceReading, ServiceReadings
from coordinator.peers import Drafts, Pool, Targets, connect_drafts, connect_targets
from coordinator.peers.ahead_blocks import BlockFate
from coordinator.requests.structure_checks import StructureChecks
from specpair.client.secured_channel import check_channel_security
from specpair.options import Drafter

DRAIN_TIMEOUT = 3.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Drafts and targets, compared and ready."""

    config: CoordinatorConfig
    target: Targets
    draft: Drafts | None
    """The draft that proposes alone; None without any."""
    drafts: Mapping[str, Drafts] = field(default_factory=dict)
    """All drafts by their names, that one first."""
    lengths: LengthController = field(default_factory=LengthController)
    beam_lengths: BeamLengths = field(default_factory=BeamLengths)
    ahead: AheadTrials = field(default_factory=AheadTrials)
    withholding: defaultdict[tuple[str, ...], Withholding] = field(default_factory=lambda: defaultdict(Withholding))
    """By the names of the drafts that a request asks for, which may be at different places."""
    metrics: CoordinatorMetrics = field(default_factory=CoordinatorMetrics)
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    structures: StructureChecks | None = None
    """None if the target can have no structured outputs."""

    def publish_costs(self) -> None:
        """Tells the adaptive part what passes cost, as the present target and draft measured it at their start."""
        draft = None if self.draft is None else self.draft.info
        target = self.target.info
        drafts_costs = () if draft is None else draft.pass_costs
        self.lengths.publish(target.pass_costs, drafts_costs, target.cached_token_seconds)

    def worth(self) -> Worth | None:
        """What proposals are worth now; None without any drafts, and while it is unknown what passes take."""
        names = self.config.drafts.names
        if self.draft is None and not names:
            return None
        self.publish_costs()
        drafter = Drafter(names[0]) if self.draft is None else self.draft.own_drafter
        return self.lengths.worth(drafter, self.config.max_num_speculative_tokens)


@asynccontextmanager
async def connect_pair(config: CoordinatorConfig, registry: CollectorRegistry | None = None) -> AsyncIterator[Pair]:
    """Waits for a target, then for a draft (with a timeout of its own), and compares their vocabularies.

    Raises PeerUnavailableError without a target, VocabularyMismatchError if the two cannot be a pair, InvalidFieldError
    for certificates, tokens and a chat template that cannot be used. On leaving, sequences that are still open are
    closed. Metrics go to `registry`, if given.
    """
    config.check_merge()
    check_channel_security(config.peer_security)
    async with connect_targets(config) as targets, connect_drafts(config, targets.model) as drafts:
        metrics = _metrics(registry, config, targets, drafts)
        first = next(iter(drafts.values()), None)
        structures = _structures(targets)
        pair = Pair(config=config, target=targets, draft=first, drafts=drafts, metrics=metrics, structures=structures)
        if config.drafts.names:
            metrics.watch_worth(pair.worth)
        _log_pair(pair)
        try:
            yield pair
        finally:
            await pair.background.drain(DRAIN_TIMEOUT)
            if structures is not None:
                await structures.close()


def _structures(targets: Targets) -> StructureChecks | None:
    info, tokenizer = targets.info, targets.tokenizer
    if tokenizer is None or not info.masks_tokens:
        return None
    eos = tuple(token for token in info.eos_token_ids if token < info.vocab_size)
    return StructureChecks(tokenizer.as_json(), info.vocab_size, eos)


def _metrics(
    registry: CollectorRegistry | None, config: CoordinatorConfig, targets: Targets, drafts: Mapping[str, Drafts]
) -> CoordinatorMetrics:
    metrics = CoordinatorMetrics(registry, config.max_num_speculative_tokens)
    metrics.watch_target(lambda: targets.is_there)
    services: dict[str, Pool[Any]] = {"target": targets}
    metrics.trees.expect(config.drafts.names)
    if drafts:
        first = next(iter(drafts.values()))
        metrics.watch_draft(lambda: any(own.is_there for own in drafts.values()))
        metrics.watch_ahead(lambda: AheadReadings(_block_counts(drafts.values()), targets.early_counts))
        services |= {"draft": first} if len(drafts) == 1 else {f"draft {name}": own for name, own in drafts.items()}
    metrics.watch_instances({name: _readings(pool) for name, pool in services.items()})
    return metrics


def _block_counts(drafts: Iterable[Drafts]) -> Mapping[BlockFate, int]:
    """What became of the proposals that the drafts prepared, whichever of them did."""
    counts = [own.block_counts for own in drafts]
    return {fate: sum(own[fate] for own in counts) for fate in BlockFate}


def _readings(pool: Pool[Any]) -> ServiceReadings:
    links = pool.links
    return ServiceReadings(
        lambda: [InstanceReading(address, link.is_there, link.sequence_count) for address, link in links.items()],
        pool.recoveries,
    )


def _log_pair(pair: Pair) -> None:
    info = None if pair.draft is None else pair.draft.info
    own = ", ".join(pair.config.drafts.names) or "no draft"
    draft_name = own if info is None else f"draft {info.model_name}"
    logger.info("%s, target %s", draft_name, pair.target.info.model_name)
