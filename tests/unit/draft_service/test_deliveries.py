"""Prepared proposals are encoded only if there is room for them on the stream."""

import asyncio

import pytest
from torch import full

from draft_service import deliveries
from draft_service.deliveries import Deliveries
from draft_service.proposal import ANSWER_BYTES, Drafted, PreparedBlock
from specpair.options import Drafter
from specpair.server.pushes import Pushes
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1 import proposal_pb2

VOCABULARY = 1024


def block(*, dense: bool, withholds: bool = False) -> PreparedBlock:
    drafted = Drafted(
        drafter=Drafter.MODEL,
        tokens=[1],
        counts=[],
        dense=[full((VOCABULARY,), 1 / VOCABULARY)] if dense else [],
        queue_time=0.0,
        compute_time=0.0,
        batch_size=1,
    )
    return PreparedBlock(
        sequence_id="s",
        step=1,
        base_length=1,
        accepted_count=0,
        next_token_id=1,
        drafted=drafted,
        withholds=withholds,
        is_current=lambda: True,
    )


@pytest.mark.parametrize("dense", [False, True])
async def test_what_has_no_room_is_not_encoded(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Drafted] = []

    async def note(drafted: Drafted) -> proposal_pb2.Proposal:
        return noted(drafted)

    def noted(drafted: Drafted) -> proposal_pb2.Proposal:
        encoded.append(drafted)
        return proposal_pb2.Proposal(token_ids=[1] * drafted.byte_count)

    monkeypatch.setattr(deliveries, "encode", note)
    monkeypatch.setattr(deliveries, "sparse", noted)
    size = ANSWER_BYTES + (4 * VOCABULARY if dense else 0)
    pushes = Pushes("ahead_blocks", 3 * (size + 100))
    sending = Deliveries(pushes)
    sending.deliver(block(dense=dense))
    assert not encoded, "the stream has not begun"
    pushes.open(lambda: None)
    for _ in range(10):
        sending.deliver(block(dense=dense))
    for _ in range(5):
        await asyncio.sleep(0)
    message = pb.StreamProposalsResponse()
    pushes.fill(message, 100 * size)
    assert len(encoded) == len(message.ahead_blocks) == 3
    sending.deliver(block(dense=dense))
    await asyncio.sleep(0)
    assert len(encoded) == 4, "there is room again"


@pytest.mark.parametrize("dense", [False, True])
async def test_rows_that_are_withheld_take_no_room(dense: bool) -> None:
    """One without rows to withhold says that it has none."""
    pushes = Pushes("ahead_blocks")
    pushes.open(lambda: None)
    Deliveries(pushes).deliver(block(dense=dense, withholds=True))
    message = pb.StreamProposalsResponse()
    pushes.fill(message, 1 << 20)
    (sent,) = message.ahead_blocks
    assert list(sent.proposal.token_ids) == [1] and sent.ByteSize() < 30
    assert sent.proposal.distributions.HasField("withheld") is dense
