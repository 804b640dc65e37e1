"""The draft model in its engine. Imported only if there is a model, because its imports take seconds."""

import logging

from prometheus_client.registry import CollectorRegistry
from torch import Tensor

from draft_service.ahead.ahead import WorkAhead
from draft_service.ahead.branching_caches import BranchingCaches
from draft_service.ahead.drafter import AheadDrafter
from draft_service.ahead.metrics import AheadCollector
from draft_service.config import DraftConfig
from draft_service.drafters.beams import BeamGrower, advance_beams
from draft_service.drafters.chains import ChainDrafter
from draft_service.drafters.guessing import GuessCounts, Guesser, Guessing, TextGuesser, make_ready
from draft_service.drafters.guessing_drafter import GuessingCollector, GuessingDrafter, advance_all
from draft_service.drafters.interface import Proposer
from draft_service.drafters.model import ModelDrafter
from draft_service.drafters.ngram_model import NgramModelDrafter
from draft_service.drafters.second_model import load_second_model
from draft_service.drafters.translated import TranslatedDrafter, advance_translated
from draft_service.drafters.translated_caches import TranslatedCaches
from draft_service.proposal import Drafted
from specpair.engine.device_thread import DeviceThread
from specpair.engine.host import ModelHost
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig
from specpair.models.captured_runner import CapturedRunner
from specpair.models.chains import ChainRunner, Chains
from specpair.models.model_facts import ModelFacts
from specpair.models.runner import Runner
from specpair.options import Drafter, OwnDraft
from specpair.sequences.cache_owner import CacheOwner
from specpair.server.identity import client_name

log = logging.getLogger(__name__)


class DraftModel(ModelHost[Drafted]):
    """The draft model with its sequences."""

    ahead: WorkAhead
    """What it prepares for calls that have not come."""
    beams: BeamGrower
    guessing: Guessing | None = None
    """How its tokens are guessed; None if they are not."""
    translated: TranslatedCaches
    """The sequences that have the tokens of another vocabulary."""

    def __init__(self, config: EngineConfig, facts: ModelFacts, runner: Runner, device: DeviceThread):
        super().__init__(config, facts, runner, device)
        self._chains: ChainDrafter | None = None
        if isinstance(runner, ChainRunner) and (chains := runner.chains) is not None:
            self._chains = self._chain_drafter(chains, runner)

    @staticmethod
    def prepare(runner: Runner) -> None:
        if isinstance(runner, CapturedRunner):
            runner.prepare_chains()

    def _chain_drafter(self, chains: Chains, runner: ChainRunner) -> ChainDrafter | None:
        """None if the runner cannot keep the pace."""
        engine = self.engine
        if engine.pacing is not None and not chains.takes_turns:
            return None
        return ChainDrafter(
            engine.cache, chains, runner.chain_misses, engine.statistics, engine.stop_flag, engine.pacing
        )

    def cache_owner(self) -> CacheOwner:
        self.ahead = WorkAhead(self.engine)
        self.beams = BeamGrower(self.engine)
        self.translated = TranslatedCaches(BranchingCaches(self.engine, self.ahead))
        return self.translated

    def drafters(self) -> dict[Drafter, Proposer]:
        """The drafters that need the model."""
        if self.guessing is not None:
            guessing = GuessingDrafter(self.engine, self.guessing)
            return {Drafter.MODEL: guessing, Drafter.NGRAM_MODEL: NgramModelDrafter(ModelDrafter(self.engine))}
        return {
            Drafter.MODEL: AheadDrafter(self.engine, self.ahead),
            Drafter.NGRAM_MODEL: NgramModelDrafter(ModelDrafter(self.engine)),
        }

    async def accelerate(self, config: DraftConfig) -> None:
        """Has the tokens of the model guessed, if that is configured. Raises ModelRefusedError for a second model."""
        if config.own_draft == OwnDraft.NONE:
            return
        guesser: Guesser
        if config.second_model is None:
            guesser = TextGuesser(OwnDraft(config.own_draft))
        else:
            guesser = await load_second_model(config.second_model, self, config.engine or self.config)
        self.guessing = Guessing(by=guesser, most=config.own_num_speculative_tokens)
        log.info("its tokens are guessed by %s, at most %d for a pass", guesser.name, self.guessing.most)

    def translating_drafters(self) -> dict[Drafter, Proposer]:
        """Those for sequences that have the tokens of another vocabulary."""
        model = TranslatedDrafter(self.engine, self.translated, self.facts.max_model_len)
        return {Drafter.MODEL: model, Drafter.NGRAM_MODEL: NgramModelDrafter(model)}

    def add_metrics(self, registry: CollectorRegistry) -> None:
        super().add_metrics(registry)
        registry.register(AheadCollector(self.ahead))
        registry.register(GuessingCollector(GuessCounts() if self.guessing is None else self.guessing.counts))

    def ready(self, works: list[Work]) -> None:
        make_ready(works)

    def advance(self, works: list[Work], logits: Tensor) -> None:
        works, logits = advance_beams(works, logits)
        works, logits = advance_translated(works, logits)
        if self._chains is not None:
            works, logits = self._chains.advance(works, logits)
        if works:
            advance_all(works, logits)

    @staticmethod
    def caller() -> str:
        return client_name()
