"""What a draft says of itself, over real gRPC."""

from coordinator.peers.draft_peer import DraftPeer
from specpair.v1 import draft_service_pb2 as pb
from tests.service.rpc_servers import draft_server

MOST = 2**64 - 1


async def boast(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
    return pb.ProposeTokensResponse(compute_time_us=MOST, queue_time_us=MOST, rollback_time_ns=MOST)


async def test_no_draft_took_longer_than_the_call() -> None:
    """Sums of such times would not fit the summary of a request, which would end for its draft's sake."""
    async with draft_server(boast) as (_, port):
        peer = DraftPeer(f"127.0.0.1:{port}")
        try:
            answer = await peer.propose("s", 1, 1, [], 1, 30.0)
        finally:
            await peer.close()
    assert 0 < answer.times.elapsed < 30
    assert answer.times.compute == answer.times.queue == answer.times.rollback == answer.times.elapsed
