"""The call that follows a verdict, and the tokens after which none does."""

from array import array
from dataclasses import replace
from struct import pack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from specpair.speculation.counted_rows import CountedRows
from specpair.v1 import target_service_pb2 as pb
from target_service.continuation import Following, OutputEnd, following_call, plain_call, take_sequel
from target_service.judged_round import JudgedRound
from target_service.own_proposal import OwnProposal
from target_service.servicer import TargetServicer
from target_service.verifier import Verifier
from target_service.verify_work import Verdict, VerifyCall

VOCABULARY = 16
PROPOSED = [5, 7, 6]
verifier = SimpleNamespace(sequences=SimpleNamespace(limits=SimpleNamespace(vocab_size=VOCABULARY)))


def verdict(path: list[int], next_token: int, proposal: OwnProposal | None = None) -> Verdict:
    return Verdict(
        path=path,
        rounds=[JudgedRound(len(PROPOSED), [*(PROPOSED[index] for index in path), next_token])],
        length=20 + len(path),
        logprobs=[],
        queue_time=0.0,
        compute_time=0.0,
        batch_token_count=1,
        target_probabilities=[],
        draft_probabilities=[],
        rollback_time=0.0,
        proposal=proposal,
    )


@pytest.mark.parametrize(
    ("path", "next_token", "goes_on"),
    [([], 4, True), ([], 9, False), ([0, 1], 4, False), ([0], 4, True), ([0, 2], 4, True), ([0, 2], 9, False)],
)
def test_an_output_ends_with_a_committed_stop_and_with_no_other(
    path: list[int], next_token: int, goes_on: bool
) -> None:
    end = OutputEnd(frozenset({7, 9}))
    assert end.spares(verdict(path, next_token)) is goes_on
    assert OutputEnd(frozenset()).spares(verdict(path, next_token))


def test_nor_does_a_run_go_on_after_a_stop_in_any_of_its_rounds() -> None:
    rounds = [JudgedRound(0, [4]), JudgedRound(2, [5, 9, 6]), JudgedRound(0, [4])]
    assert not OutputEnd(frozenset({9})).spares(replace(verdict([], 4), rounds=rounds))
    assert OutputEnd(frozenset({8})).spares(replace(verdict([], 4), rounds=rounds))


def call(**fields: Any) -> pb.VerifyProposalRequest:
    return pb.VerifyProposalRequest(
        sequence_id="a",
        step=3,
        base_length=18,
        appended_token_ids=[1, 2],
        include_probabilities=True,
        feature_layers=[1],
        next_proposal_count=4,
        next_proposal_min_confidence=0.5,
        **fields,
    )


def following(request: pb.VerifyProposalRequest) -> Following:
    common = following_call(request)
    return Following(common, VOCABULARY, plain_call(common, VOCABULARY))


def decode(request: pb.VerifyProposalRequest) -> VerifyCall:
    return TargetServicer(cast(Verifier, verifier))._decode(request)


def test_the_call_that_follows_is_the_next_one_without_its_continuation() -> None:
    request = call(continuation=pb.Continuation(next_proposal_count=2, next_proposal_min_confidence=0.25))
    assert following(request).request(4, 21, None) == pb.VerifyProposalRequest(
        sequence_id="a",
        step=4,
        base_length=21,
        include_probabilities=True,
        feature_layers=[1],
        next_proposal_count=2,
        next_proposal_min_confidence=0.25,
    )


ROWS = CountedRows(array("q", [2, 1, 8, 9, 3, 4]), pack("<3I", 8, 5, 9), pack("<3I", 3, 1, 4), 2, VOCABULARY)
"""Token 8 with 3 of 4 beside 5, then 9 for certain."""


@pytest.mark.parametrize(
    "own",
    [
        None,
        OwnProposal(step=3, length=21, token_ids=[8, 9], rows=None, parents=()),
        OwnProposal(step=3, length=21, token_ids=[8, 9], rows=ROWS, parents=()),
        OwnProposal(step=3, length=21, token_ids=[8, 9, 8], rows=None, parents=(-1, -1, 1)),
    ],
)
def test_it_is_the_same_as_its_message_says(own: OwnProposal | None) -> None:
    request = call(continuation=pb.Continuation(next_proposal_count=2, next_proposal_min_confidence=0.25))
    made, decoded = following(request).call(4, 21, own), decode(following(request).request(4, 21, own))
    assert made._replace(draft=decoded.draft) == decoded
    assert isinstance(made.draft, CountedRows) and isinstance(decoded.draft, CountedRows)
    assert content(made.draft) == content(decoded.draft)


def content(rows: CountedRows) -> tuple[object, ...]:
    return rows.numbers, rows.id_bytes, rows.count_bytes, rows.total_log2, rows.vocab_size


def test_it_has_what_the_target_proposed() -> None:
    own = OwnProposal(step=4, length=21, token_ids=[8, 9], rows=None, parents=(-1, -1))
    following_own = following(call(continuation=pb.Continuation()))
    proposal = following_own.request(4, 21, own).proposal
    assert list(proposal.token_ids) == [8, 9] and list(proposal.parent_indices) == [-1, -1]
    decoded = following_own.call(4, 21, own)
    assert decoded.proposed == [8, 9] and decoded.tree is not None and decoded.tree.parents == (-1, -1)


def test_the_same_call_with_and_without_a_continuation_is_one() -> None:
    request = call(continuation=pb.Continuation())
    assert take_sequel(request, frozenset(), cast(Verifier, verifier)) is not None
    assert request == call()
    assert take_sequel(request, frozenset(), cast(Verifier, verifier)) is None
