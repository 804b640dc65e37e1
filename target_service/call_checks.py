"""What is wrong with a verification call before it is decoded."""

from collections.abc import Sequence

from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.grammars.grammar import MAX_FORCED_TOKENS
from specpair.options import check_count, check_range
from specpair.rpc.messages import check_sequence_id
from specpair.speculation.randomness import LAST_STEP
from specpair.v1 import target_service_pb2 as pb
from specpair.wire.limits import DRAWS_PER_TOKEN
from target_service.verifier import Verifier
from target_service.verify_work import MOST_RUN, MOST_RUN_SECONDS

MAX_FEATURE_LAYERS = 8
"""Draft heads read the hidden states of three layers. This many layers of the widest models fit into a message."""


def check_features(layers: Sequence[int], layer_count: int) -> None:
    """Raises InvalidFieldError for layers that the model lacks, or for too many layers."""
    check_count("feature_layers", len(layers), MAX_FEATURE_LAYERS)
    if layers and not layer_count:
        raise NotSupportedError("feature_layers: the layers of this model cannot be told apart")
    if layers and (worst := max(layers)) >= layer_count:
        raise InvalidFieldError(
            "feature_layers", f"holds {worst}; the model has {layer_count} layers", limit=layer_count - 1
        )


def check_call(request: pb.VerifyProposalRequest, verifier: Verifier) -> None:
    """Raises for requests that are too large or not supported, before they are decoded. That a sequence is not here is
    said before what it may ask a head for: the process that had it may have had another head. The caller then looks at
    this process again."""
    if request.HasField("condition"):
        raise InvalidFieldError("condition", "is set; send the call on StreamVerifications, with is_unanswered")
    check_form(request, verifier)
    held = verifier.sequences.get(request.sequence_id)
    if request.may_go_on_plain and not held.options.ignores_proposals:
        problem = (
            "is set; whether there is a proposal may be decided late at temperature 0 and under the coupled rule alone"
        )
        raise InvalidFieldError("may_go_on_plain", problem)
    for prefix, length in (("", request.run_length), ("continuation.", request.continuation.run_length)):
        if length > 1 and held.options.structured_output is not None:
            problem = f"is {length}; each token of a structured output is asked for"
            raise InvalidFieldError(f"{prefix}run_length", problem, limit=1)
    check_abilities(request, verifier)


def check_form(request: pb.VerifyProposalRequest, verifier: Verifier) -> None:
    """Raises for requests that are too large, or malformed, by the limits of this process."""
    check_sequence_id("sequence_id", request.sequence_id)
    check_count("appended_token_ids", len(request.appended_token_ids), verifier.sequences.limits.max_model_len)
    check_count("proposal.token_ids", len(request.proposal.token_ids), verifier.max_num_speculative_tokens)
    check_count("proposal.draw_nodes", len(request.proposal.draw_nodes), most_draws(verifier))
    check_count("proposal.draw_rows", len(request.proposal.draw_rows), most_draws(verifier))
    check_features(request.feature_layers, verifier.facts.feature_layer_count)
    check_range("max_forced_tokens", request.max_forced_tokens, 0, MAX_FORCED_TOKENS)
    check_run("", request, request)
    check_run("continuation.", request.continuation, request)
    if request.step + request.run_length - 1 > LAST_STEP:
        raise InvalidFieldError("run_length", f"is {request.run_length}; there are not so many steps left", limit=1)


def check_abilities(request: pb.VerifyProposalRequest, verifier: Verifier) -> None:
    """Raises for what this target does not do."""
    check_order("", request, verifier)
    check_order("continuation.", request.continuation, verifier)
    if (problem := not_supported(request, verifier)) is not None:
        raise NotSupportedError(problem)


def check_run(prefix: str, call: pb.VerifyProposalRequest | pb.Continuation, request: pb.VerifyProposalRequest) -> None:
    """Raises InvalidFieldError for a run that is too long, or in a call that has none; `prefix` is that of the field's
    name."""
    check_range(f"{prefix}run_length", call.run_length, 0, MOST_RUN)
    check_range(f"{prefix}run_seconds", call.run_seconds, 0.0, MOST_RUN_SECONDS)
    if call.run_length <= 1:
        return
    given = {
        "feature_layers": bool(request.feature_layers),
        "include_probabilities": request.include_probabilities,
        "max_forced_tokens": call is request and request.max_forced_tokens > 0,
    }
    if (other := next((name for name, is_given in given.items() if is_given), None)) is not None:
        raise InvalidFieldError(f"{prefix}run_length", f"is {call.run_length}; with {other} it is 1 at most", limit=1)


def check_order(prefix: str, order: pb.VerifyProposalRequest | pb.Continuation, verifier: Verifier) -> None:
    """Raises InvalidFieldError for a proposal that no head may be asked for. `prefix` is that of the fields' names."""
    check_range(f"{prefix}next_proposal_count", order.next_proposal_count, 0, verifier.max_num_speculative_tokens)
    check_range(f"{prefix}next_proposal_min_confidence", order.next_proposal_min_confidence, 0.0, 1.0)


def not_supported(request: pb.VerifyProposalRequest, verifier: Verifier) -> str | None:
    """What the call asks for that this target cannot do."""
    if request.next_proposal_count and not verifier.has_head:
        return "next_proposal_count: this target has no head"
    if request.continuation.next_proposal_count and not verifier.has_head:
        return "continuation.next_proposal_count: this target has no head"
    if request.proposal.parent_indices and verifier.no_trees:
        return f"proposal.parent_indices: {verifier.no_trees}"
    return None


def most_draws(verifier: Verifier) -> int:
    return DRAWS_PER_TOKEN * verifier.max_num_speculative_tokens
