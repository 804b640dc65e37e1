"""Messages of ScoreTree to plain data and back."""

from specpair.options import check_count, check_range
from specpair.rpc.messages import check_sequence_id
from specpair.sequences.sequence_limits import SequenceLimits
from specpair.speculation.beams.beam_options import MAX_TOP_COUNT, MAX_TREE_NODES
from specpair.v1 import target_service_pb2 as pb
from specpair.wire.beams import check_nodes, decode_beams
from target_service.tree_scores import ScoreTreeCall, TreeScores


def score_tree_call(request: pb.ScoreTreeRequest, limits: SequenceLimits) -> ScoreTreeCall:
    """The checked call. Raises InvalidFieldError."""
    check_sequence_id("sequence_id", request.sequence_id)
    check_count("appended_token_ids", len(request.appended_token_ids), limits.max_model_len)
    check_range("logprobs", request.logprobs, 1, MAX_TOP_COUNT)
    tree = decode_beams(request.tree, limits.vocab_size)
    return ScoreTreeCall(
        sequence_id=request.sequence_id,
        step=request.step,
        base_length=request.base_length,
        appended=list(request.appended_token_ids),
        tree=tree,
        asked=check_nodes("asked_nodes", request.asked_nodes, tree, MAX_TREE_NODES + 1),
        top_count=request.logprobs,
    )


def score_tree_response(instance_id: str, step: int, scores: TreeScores) -> pb.ScoreTreeResponse:
    return pb.ScoreTreeResponse(
        instance_id=instance_id,
        step=step,
        token_ids=scores.token_ids,
        logprobs=scores.logprobs,
        queue_time_us=round(scores.queue_time * 1e6),
        compute_time_us=round(scores.compute_time * 1e6),
        rollback_time_ns=round(scores.rollback_time * 1e9),
        batch_token_count=scores.batch_token_count,
        cached_token_count=scores.cached_token_count,
    )
