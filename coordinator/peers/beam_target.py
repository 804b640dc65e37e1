"""The sequence of a beam search at a target. It survives restarts, lost connections and moves to another target."""

from collections.abc import Coroutine, Sequence
from typing import Any

from coordinator.peers.backoff import Backoff
from coordinator.peers.beam_answers import TreeRows
from coordinator.peers.target_session import TargetSession
from coordinator.peers.targets import TargetLink
from specpair.prefixes import common_length
from specpair.speculation.beams.beam_tree import BeamTree
from specpair.v1.target_service_pb2 import ScoreTreeRequest
from specpair.wire.beams import encode_beams


class BeamTargetSession(TargetSession):
    """Holds what all beams have in common; each call brings the rest of them. So a call can be asked of any target."""

    _held: list[int]
    """Tokens that the target holds, as far as is known: it may hold more of the last call."""

    async def score_tree(
        self, step: int, history: Sequence[int], tree: BeamTree, asked: Sequence[int], top_count: int
    ) -> TreeRows:
        """The `top_count` likeliest tokens after each asked node of the tree, which follows the history.

        Raises PeerUnavailableError if no target answers in time, and whatever it refuses.
        """

        def ask(link: TargetLink, within: float) -> Coroutine[Any, Any, TreeRows]:
            base = common_length(self._held, list(history))
            request = ScoreTreeRequest(
                sequence_id=self._name,
                step=step,
                base_length=base,
                appended_token_ids=history[base:],
                tree=encode_beams(tree),
                asked_nodes=asked,
                logprobs=top_count,
            )
            return link.peer.score_tree(request, within)

        async with self._lock:
            self._begin_round()
            scored = await self._asked(step, history, ask)
            self._held = list(history)
            return scored

    async def _open(self, link: TargetLink, history: Sequence[int], backoff: Backoff) -> None:
        await super()._open(link, history, backoff)
        self._held = list(history)
