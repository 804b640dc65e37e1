"""What the target says was accepted."""

import time

import pytest

from coordinator.peers.answers import CallTimes, accepted_path, early_call_times, forced_tokens, proposing_time
from specpair.errors import SpecpairError
from specpair.v1.proposal_pb2 import Proposal
from specpair.v1.target_service_pb2 import VerifyProposalResponse

CHAIN = Proposal(token_ids=[5, 6, 7])
TREE = Proposal(token_ids=[5, 6, 7, 8], parent_indices=[-1, -1, 1, 2])


@pytest.mark.parametrize("path", [(), (0, 1)])
def test_a_target_may_leave_the_path_of_a_chain_out(path: tuple[int, ...]) -> None:
    assert accepted_path(VerifyProposalResponse(accepted_count=2, accepted_path=path), CHAIN) == (0, 1)


@pytest.mark.parametrize(("count", "path"), [(4, ()), (2, (0, 2)), (2, (1, 0)), (2, (0,)), (1, (0, 1))])
def test_what_fits_no_chain_of_three_is_refused(count: int, path: tuple[int, ...]) -> None:
    with pytest.raises(SpecpairError, match="the target accepted"):
        accepted_path(VerifyProposalResponse(accepted_count=count, accepted_path=path), CHAIN)


@pytest.mark.parametrize("path", [(), (0,), (1, 2), (1, 2, 3)])
def test_a_path_of_a_tree(path: tuple[int, ...]) -> None:
    assert accepted_path(VerifyProposalResponse(accepted_count=len(path), accepted_path=path), TREE) == path


@pytest.mark.parametrize(("count", "path"), [(1, ()), (2, (0, 1)), (1, (2,)), (2, (1, 3)), (1, (4,)), (3, (1, 2))])
def test_what_is_no_path_of_the_tree_is_refused(count: int, path: tuple[int, ...]) -> None:
    with pytest.raises(SpecpairError, match="which is no path of the proposal"):
        accepted_path(VerifyProposalResponse(accepted_count=count, accepted_path=path), TREE)


def test_a_call_that_was_sent_early_counts_from_when_it_was_needed() -> None:
    answer = VerifyProposalResponse(compute_time_us=300_000, queue_time_us=600_000)
    now = time.perf_counter()
    early = early_call_times(now - 0.5, answer)
    assert early[:4] == pytest.approx((now - 0.5, 0.5, 0.2, 0.3), abs=0.05), "it waited after it was made"
    before = early_call_times(now - 0.1, answer)
    assert before[:4] == pytest.approx((now - 0.3, 0.3, 0.0, 0.3), abs=0.05), "its computation began before that"


def test_what_proposing_took_is_a_part_of_the_computation() -> None:
    times = CallTimes(started_at=0.0, elapsed=0.4, queue=0.0, compute=0.3)

    def taken(proposing: int, compute: int = 300_000) -> float:
        return proposing_time(VerifyProposalResponse(proposing_time_us=proposing, compute_time_us=compute), times)

    assert [taken(each) for each in (0, 200_000, 2**64 - 1)] == pytest.approx([0.0, 0.2, 0.3])
    assert taken(200_000, 600_000) == pytest.approx(0.1), "of an answer from memory, which came sooner"
    assert taken(200_000, 0) == 0.0


def test_a_target_names_no_more_forced_tokens_than_were_asked_for() -> None:
    answer = VerifyProposalResponse(forced_token_ids=[4, 5])
    assert forced_tokens(answer, 2) == (4, 5)
    with pytest.raises(SpecpairError, match="2 forced tokens; 1 were asked for"):
        forced_tokens(answer, 1)
