"""Runs are refused where each token needs something of its own."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.options import SamplingOptions, SequenceOptions, StructuredOutput, StructureKind
from specpair.v1 import target_service_pb2 as pb
from target_service.call_checks import check_call
from target_service.servicer import TargetServicer
from target_service.verifier import Verifier

PLAIN = SequenceOptions(sampling=SamplingOptions())


def verifier(options: SequenceOptions, *, has_head: bool = False) -> Verifier:
    held = SimpleNamespace(options=options)
    limits = SimpleNamespace(max_model_len=100, vocab_size=16)
    made = SimpleNamespace(
        sequences=SimpleNamespace(get=lambda name: held, limits=limits),
        facts=SimpleNamespace(feature_layer_count=0),
        max_num_speculative_tokens=8,
        has_head=has_head,
        no_trees="",
    )
    return cast(Verifier, made)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"run_length": 2}, "run_length"), ({"continuation": {"run_length": 2}}, "continuation.run_length")],
)
def test_each_token_of_a_structured_output_is_asked_for(fields: dict[str, Any], field: str) -> None:
    request = pb.VerifyProposalRequest(sequence_id="a", step=1, base_length=5, **fields)
    check_call(request, verifier(PLAIN))
    structured = SequenceOptions(
        sampling=SamplingOptions(), structured_output=StructuredOutput(kind=StructureKind.JSON_OBJECT)
    )
    with pytest.raises(InvalidFieldError, match=f"^{field}: .*each token of a structured output is asked for"):
        check_call(request, verifier(structured))


@pytest.mark.parametrize(
    "fields",
    [
        {"run_length": 2, "include_probabilities": True},
        {"run_length": 2, "max_forced_tokens": 1},
        {"continuation": {"run_length": 2}, "include_probabilities": True},
    ],
)
def test_what_each_verdict_has_for_itself_is_not_asked_of_a_run(fields: dict[str, Any]) -> None:
    request = pb.VerifyProposalRequest(sequence_id="a", step=1, base_length=5, **fields)
    with pytest.raises(InvalidFieldError, match=r"run_length: is 2; with .* it is 1 at most"):
        check_call(request, verifier(PLAIN))


def test_a_head_proposes_in_a_run() -> None:
    request = pb.VerifyProposalRequest(sequence_id="a", step=1, base_length=5, run_length=2, next_proposal_count=3)
    check_call(request, verifier(PLAIN, has_head=True))
    with pytest.raises(NotSupportedError, match="next_proposal_count: this target has no head"):
        check_call(request, verifier(PLAIN))


def test_no_run_waits_for_a_verdict() -> None:
    """It is answered as any call that is refused."""
    request = pb.VerifyProposalRequest(sequence_id="a", step=1, base_length=5, run_length=2, condition=pb.Condition())
    servicer = TargetServicer(verifier(PLAIN))
    assert not servicer._take(pb.VerificationCall(request=request, is_unanswered=True))
    with pytest.raises(InvalidFieldError, match="condition"):
        check_call(request, verifier(PLAIN))
