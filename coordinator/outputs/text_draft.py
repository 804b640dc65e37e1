"""Proposals from nothing but the text, made where the text is: no service is asked."""

import time
from collections.abc import Sequence

from coordinator.peers import CallTimes, Proposed
from coordinator.peers.ahead_blocks import AheadBlocks, Preparation
from coordinator.peers.proposal_source import ProposalSource
from specpair.errors import SpecpairError
from specpair.options import Drafter, SequenceOptions
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.predicted_proposal import Drawn, ProposalTask, draw_proposal
from specpair.speculation.prompt_lookup import LookupPredictor
from specpair.speculation.token_index import TokenIndex
from specpair.v1.proposal_pb2 import Proposal
from specpair.wire.counts import encode_counts

PREDICTORS = {Drafter.NGRAM: NgramPredictor, Drafter.PROMPT_LOOKUP: LookupPredictor}


class TextDraft(ProposalSource):
    """Draws what a draft service with the same drafter would draw, by the same functions and random numbers
    (docs/exactness.md, rules 1 and 7)."""

    def __init__(self, drafter: Drafter, options: SequenceOptions, prompt_length: int, longest: int):
        """`drafter` is one of FROM_TEXT; `longest` is the most tokens of a proposal."""
        self.blocks = AheadBlocks()
        self._make = PREDICTORS[drafter]
        self._options = options
        self._prompt_length = prompt_length
        self._longest = longest
        self._index = TokenIndex(options.encoder_ids)
        self._is_left_alone = False

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_known(self) -> bool:
        return True

    def start(self, history: Sequence[int], original: ProposalSource | None = None) -> bool:
        """Nothing has to be opened."""
        return True

    def room(self, length: int) -> int:
        return self._longest

    def has_prepared(self, step: int, history: Sequence[int]) -> bool:
        return False

    async def propose(
        self,
        step: int,
        history: Sequence[int],
        count: int,
        min_confidence: float = 0.0,
        preparation: Preparation | None = None,
        tree_tokens: int = 0,
    ) -> Proposed | None:
        """Up to `count` tokens, always a chain, perhaps none; None if the target has refused one."""
        if self._is_left_alone:
            return None
        start = time.perf_counter()
        drawn = self._draw(step, history, count, min_confidence)
        distributions = encode_counts(drawn.rows) if drawn.rows else None
        took = time.perf_counter() - start
        return Proposed(
            proposal=Proposal(token_ids=drawn.tokens, distributions=distributions),
            times=CallTimes(started_at=start, elapsed=took, queue=0.0, compute=took),
        )

    def guess(self, step: int, history: Sequence[int], count: int) -> Sequence[int]:
        return self._draw(step, history, count, 0.0).tokens

    def leave_alone(self, error: SpecpairError) -> None:
        """It would make the same proposals again."""
        self._is_left_alone = True

    async def close(self) -> None:
        """Holds nothing."""

    def _draw(self, step: int, history: Sequence[int], count: int, min_confidence: float) -> Drawn:
        options = self._options
        assert options.vocab_size is not None
        self._index.follow(history, len(history))
        task = ProposalTask(
            options=options.sampling,
            rule=options.rule,
            vocab_size=options.vocab_size,
            prompt_length=self._prompt_length,
            length=len(history),
            step=step,
            max_tokens=count,
            min_confidence=min_confidence,
            draft_index=options.draft_index,
        )
        return draw_proposal(self._make(self._index), task)
