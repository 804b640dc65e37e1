"""Scores trees of beams after the tokens of open sequences."""

from typing import Any

from specpair.engine.engine import Engine
from specpair.errors import NotSupportedError
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence_store import SequenceStore
from target_service.tree_scores import ScoreTreeCall, TreeScores, TreeScoreWork


class TreeScorer:
    """Runs on the event loop. A call takes a step of its sequence, as a verification does, and commits no token of the
    tree."""

    def __init__(self, engine: Engine, sequences: SequenceStore[Any], why_not: str):
        """`why_not` says why there is no beam search; empty if there is."""
        self._engine = engine
        self._sequences = sequences
        self.why_not = why_not

    async def score(self, call: ScoreTreeCall, body: bytes) -> TreeScores:
        """The scores of one call, computed once for each step. Raises NotSupportedError without beam search."""
        if self.why_not:
            raise NotSupportedError(f"beam search: {self.why_not}")

        async def compute(held: HeldSequence[Any]) -> TreeScores:
            return await self._compute(held, call)

        return await self._sequences.step(call.sequence_id, call.step, ("tree", body), compute)

    async def _compute(self, held: HeldSequence[Any], call: ScoreTreeCall) -> TreeScores:
        tree = call.tree
        self._sequences.check_position(held, call.base_length, call.appended, len(tree))
        self._sequences.commit(held, call.base_length, call.appended)
        work = TreeScoreWork(
            sequence=held.cached,
            row_count=1 + len(tree),
            parents=tuple(tree.parents) or None,
            asked=call.asked,
            top_count=call.top_count,
        )
        held.cached.replace_from(held.length, tree.tokens)
        try:
            await self._engine.run(work)
        except Exception:
            held.cached.replace_from(held.length, [])
            raise
        return TreeScores(
            token_ids=work.token_ids,
            logprobs=work.logprobs,
            queue_time=work.queue_time,
            compute_time=work.compute_time,
            rollback_time=work.rollback_time,
            batch_token_count=work.largest_batch.token_count if work.largest_batch else 0,
            cached_token_count=work.sequence.kept_length or 0,
        )
