"""Sends prepared proposals to the target while it still judges the round before."""

from contextvars import copy_context

from coordinator.outputs.round import Round
from coordinator.peers import TargetSession
from coordinator.peers.ahead_blocks import AheadBlocks, PreparedBlock, ignore
from coordinator.requests.request import GenerationRequest

MOST_BYTES = 512 * 1024
"""Largest size of the proposals that follow one round; all but one of them are sent in vain."""


class EarlyVerification:
    """The verifications on condition of one output.

    They save the way from the verdict to the next call. Nothing depends on them: see TargetSession.verify_early.
    """

    def __init__(self, request: GenerationRequest, target: TargetSession, blocks: AheadBlocks):
        self._target = target
        self._blocks = blocks
        self._stops = frozenset(request.sampling.stop_token_ids)
        self._longest = len(request.prompt_ids) + request.max_tokens
        """Tokens at which the output ends."""
        self._round: Round | None = None
        """The round that is judged now."""
        self._length = self._sent_bytes = 0
        self._context = copy_context()
        """That of the round: blocks come in the context of whoever opened the stream, which may be another trace."""
        blocks.on_block = self._offer

    def begin(self, judged: Round, length: int) -> None:
        """The target judges this round now; `length` tokens are committed before it."""
        self._round, self._length, self._sent_bytes = judged, length, 0
        self._context = copy_context()

    def end(self) -> None:
        """The round has its verdict, or failed."""
        self._round = None

    def leave(self) -> None:
        """The output is over."""
        self.end()
        self._blocks.on_block = ignore  # it refers to this object, which refers to the blocks

    def follow(self) -> None:
        """Sends what has come before the call of the round."""
        if self._round is not None:
            for block in list(self._blocks.of_step(self._round.step + 1)):
                self._offer(block)

    def _offer(self, block: PreparedBlock) -> None:
        """Sends a block, unless the output would end before it or with it."""
        if self._round is None or not self._is_possible(block, self._round):
            return
        size = block.proposal.ByteSize()
        if self._sent_bytes + size > MOST_BYTES:
            return
        if self._context.run(self._target.verify_early, block.key, block.proposal):
            self._sent_bytes += size

    def _is_possible(self, block: PreparedBlock, judged: Round) -> bool:
        key, count = block.key, len(block.proposal.token_ids)
        if (key.step, key.base_length) != (judged.step + 1, self._length) or key.accepted_count > judged.drafted_count:
            return False
        if not 0 < count <= judged.prepared_count or block.length + count >= self._longest:
            return False
        return self._stops.isdisjoint([*judged.token_ids[: key.accepted_count], key.next_token_id])
