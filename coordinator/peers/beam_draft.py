"""The sequence of a beam search at a draft. The draft may fail at any time without harm to the result."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.peers.answers import Proposed
from coordinator.peers.draft_call import DraftCall
from coordinator.peers.draft_session import DraftSession
from coordinator.peers.drafts import DraftLink
from specpair.speculation.beams.beam_tree import BeamGroup
from specpair.v1.draft_service_pb2 import GrowBeamsRequest
from specpair.wire.beams import encode_beams


@dataclass(frozen=True, kw_only=True)
class BeamCall(DraftCall):
    """One call for continuations of beams. The history is what they have in common."""

    group: BeamGroup
    width: int
    """Beams that the draft keeps after each token."""

    async def _proposal(self, held: int) -> Proposed:
        request = GrowBeamsRequest(
            sequence_id=self.opening.name,
            step=self.step,
            base_length=held,
            appended_token_ids=self.history[held:],
            tree=encode_beams(self.group.tree),
            beam_nodes=self.group.nodes,
            beam_scores=[beam.score for beam in self.group.beams],
            num_speculative_tokens=self.count,
            num_beams=self.width,
        )
        return await self.link.peer.grow_beams(request, self.trial.within)


class BeamDraftSession(DraftSession):
    """Holds what all beams have in common, which only grows; each call brings the rest of them."""

    async def grow(
        self, step: int, history: Sequence[int], group: BeamGroup, count: int, width: int
    ) -> Proposed | None:
        """Continuations of the group's beams by up to `count` tokens; None if no draft can continue them now."""
        call = self._call(step, history, count, 0.0, None, 0)
        if call is None:
            return None
        if self._may_ask(call.link):
            known = {name: getattr(call, name) for name in DraftCall.__dataclass_fields__}
            return await BeamCall(**known, group=group, width=width).answer()
        self._try_again(call)
        return None

    def _choose(self, history: Sequence[int]) -> DraftLink | None:
        link = super()._choose(history)
        return link if link is not None and link.grows_beams else None
