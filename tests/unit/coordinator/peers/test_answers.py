"""What the services say, read at the edge: seconds, a path, and nothing that cannot be."""

import time

import pytest

from coordinator.peers.answers import accepted_path, call_times
from specpair.errors import SpecpairError
from specpair.v1.target_service_pb2 import VerifyProposalResponse


@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_path_of_a_chain_is_its_beginning(count: int) -> None:
    assert accepted_path(VerifyProposalResponse(accepted_count=count), 4) == tuple(range(count))


@pytest.mark.parametrize("count", [5, 4_000_000_000])
def test_more_accepted_tokens_than_were_proposed_are_no_path(count: int) -> None:
    with pytest.raises(SpecpairError, match=f"accepted {count} of 4 tokens"):
        accepted_path(VerifyProposalResponse(accepted_count=count), 4)


def test_times_are_seconds_and_no_longer_than_the_call() -> None:
    answer = VerifyProposalResponse(compute_time_us=3000, queue_time_us=2**63, rollback_time_ns=500)
    times = call_times(time.perf_counter() - 0.01, answer)
    assert times.compute == pytest.approx(0.003) and times.rollback == pytest.approx(5e-7)
    assert times.queue == times.elapsed >= 0.01
    assert times.outside == pytest.approx(times.elapsed - 0.003)
