"""Proposals from nothing but the text, made where the text is: no service is asked."""

import time
from collections.abc import Sequence

from coordinator.peers import CallTimes, Proposed
from coordinator.peers.ahead_blocks import AheadBlocks, Preparation
from coordinator.peers.proposal_source import ProposalSource
from specpair.errors import SpecpairError
from specpair.options import Drafter, Encoding, SequenceOptions
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.predicted_proposal import Drawn, ProposalTask, draw_proposal
from specpair.speculation.prompt_lookup import LookupPredictor
from specpair.speculation.token_index import TokenIndex
from specpair.v1.proposal_pb2 import Distributions, Proposal
from specpair.wire.counts import encode_counts, encode_dense_counts

PREDICTORS = {Drafter.NGRAM: NgramPredictor, Drafter.PROMPT_LOOKUP: LookupPredictor}


class TextDraft(ProposalSource):
    """Draws what a draft service with the same drafter would draw, by the same functions and random numbers
    (docs/exactness.md, rules 1 and 7)."""

    opens = False

    def __init__(self, drafter: Drafter, options: SequenceOptions, prompt_length: int, longest: int, cooldown: float):
        """`drafter` is one of FROM_TEXT; `longest` is the most tokens of a proposal. After one that was refused there
        are none for `cooldown` seconds."""
        self.blocks = AheadBlocks()
        self._make = PREDICTORS[drafter]
        self._options = options
        self._prompt_length = prompt_length
        self._longest = longest
        self._cooldown = cooldown
        self._index = TokenIndex(options.encoder_ids)
        self._quiet_until = 0.0

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
        return 0 if time.monotonic() < self._quiet_until else self._longest

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
        """Up to `count` tokens, always a chain, perhaps none; None soon after a refusal."""
        count = min(count, self.room(len(history)))
        if not count:
            return None
        start = time.perf_counter()
        drawn = self._draw(step, history, count, min_confidence)
        distributions = self._encode(drawn) if drawn.rows else None
        took = time.perf_counter() - start
        return Proposed(
            proposal=Proposal(token_ids=drawn.tokens, distributions=distributions),
            times=CallTimes(started_at=start, elapsed=took, queue=0.0, compute=took),
        )

    def guess(self, step: int, history: Sequence[int], count: int) -> Sequence[int]:
        """Up to `count` tokens that it would propose, for nobody to judge."""
        return self._draw(step, history, count, 0.0).tokens

    def leave_alone(self, error: SpecpairError) -> None:
        self._quiet_until = time.monotonic() + self._cooldown

    async def close(self) -> None:
        """Holds nothing."""

    def _encode(self, drawn: Drawn) -> Distributions:
        assert self._options.vocab_size is not None
        if self._options.encoding is Encoding.DENSE:
            return encode_dense_counts(drawn.rows, self._options.vocab_size)
        return encode_counts(drawn.rows)

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
