"""The draft service as the coordinator calls it."""

import time
from collections.abc import Sequence

from coordinator.peers.answers import Proposed, call_times
from coordinator.peers.model_peer import ModelPeer
from specpair.client.channel import proposal_caller
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.v1 import draft_service_pb2


class DraftPeer(ModelPeer):
    """The draft service."""

    def __init__(self, address: str, security: ChannelSecurity = PLAIN):
        super().__init__(address, security)
        self._proposals = proposal_caller(self.channel)

    async def propose(
        self,
        sequence_id: str,
        step: int,
        base_length: int,
        appended: Sequence[int],
        count: int,
        within: float,
        min_confidence: float = 0.0,
    ) -> Proposed:
        """Proposes up to `count` tokens after the `base_length` tokens that the draft holds and the `appended` ones.

        The draft stops once its tokens together have a probability below `min_confidence`.
        """
        request = draft_service_pb2.ProposeTokensRequest(
            sequence_id=sequence_id,
            step=step,
            base_length=base_length,
            appended_token_ids=appended,
            num_speculative_tokens=count,
            min_confidence=min_confidence,
        )
        start = time.perf_counter()
        response = await self._proposals.call(request, within)
        return Proposed(proposal=response.proposal, times=call_times(start, response))

    async def close(self) -> None:
        await self._proposals.close()
        await super().close()
