"""Which prepared proposals are sent to the target before they are asked for, and how many bytes of them."""

from typing import Any, cast

import pytest

from coordinator.outputs import early_verification
from coordinator.outputs.early_verification import EarlyVerification
from coordinator.outputs.round import Round
from coordinator.peers import TargetSession
from coordinator.peers.ahead_blocks import AheadBlocks, BlockInbox, BlockKey
from specpair.options import Rule
from specpair.v1.draft_service_pb2 import AheadBlock
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.pair_bench import PROMPT, request


class Target:
    """Counts what it is offered, and takes it once its call is out."""

    def __init__(self) -> None:
        self.is_out = False
        self.offered: list[BlockKey] = []
        self.sent: list[BlockKey] = []

    def verify_early(self, key: BlockKey, proposal: Proposal) -> bool:
        self.offered.append(key)
        if self.is_out:
            self.sent.append(key)
        return self.is_out


def block(token: int) -> AheadBlock:
    values: dict[str, Any] = {"step": 2, "base_length": len(PROMPT), "accepted_count": 0, "next_token_id": token}
    return AheadBlock(sequence_id="s", proposal=Proposal(token_ids=[7, 8]), **values)


def test_only_what_was_sent_counts_against_the_most_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that come before the call of the round is out are offered again once it is."""
    monkeypatch.setattr(early_verification, "MOST_BYTES", 2 * block(1).proposal.ByteSize())
    target, blocks, inbox = Target(), AheadBlocks(), BlockInbox()
    early = EarlyVerification(request(), cast(TargetSession, target), blocks)
    blocks.expect(inbox, "s", 2, len(PROMPT), 8)
    early.begin(Round(step=1, rule=Rule.TOKEN, prepared_count=2), len(PROMPT))
    for token in (1, 2):
        inbox.receive(block(token))
    assert len(target.offered) == 2 and not target.sent
    target.is_out = True
    early.follow()
    inbox.receive(block(3))
    assert [key.next_token_id for key in target.sent] == [1, 2], "the third is beyond the most bytes"
