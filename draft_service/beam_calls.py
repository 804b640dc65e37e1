"""Calls of GrowBeams: checked, run on their sequence, and answered."""

from typing import TYPE_CHECKING, Any

from draft_service.host import DraftHost
from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.options import check_count, check_range
from specpair.rpc.messages import body_of, check_sequence_id
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.beams.beam_growth import BeamGrowth, GrowthPlan
from specpair.speculation.beams.beam_options import MAX_TREE_NODES
from specpair.v1 import beams_pb2
from specpair.v1 import draft_service_pb2 as pb
from specpair.wire.beams import check_nodes, decode_beams

if TYPE_CHECKING:  # a draft without a model loads no engine
    from draft_service.drafters.beams import GrownBeams

MAX_WIDTH = 64
MOST_SCORE = 1e30


async def grow_beams(host: DraftHost, request: pb.GrowBeamsRequest) -> pb.GrowBeamsResponse:
    """The answer to one call, computed once for each step. Raises SpecpairError."""
    model, sequences = host.model, host.sequences
    if model is None or model.no_trees:
        why_not = "the draft has no model" if model is None else model.no_trees
        raise NotSupportedError(f"beam search: {why_not}")
    check_request(request, host)
    known = sequences.get(request.sequence_id).options
    if known.target_vocabulary:
        raise NotSupportedError("beam search: the draft has another vocabulary than the target, and continues no beams")
    vocab_size = sequences.limits.vocab_size_of(known)
    tree = decode_beams(request.tree, vocab_size)
    nodes = check_nodes("beam_nodes", request.beam_nodes, tree, MAX_WIDTH)
    size = len(tree)

    async def compute(held: HeldSequence[Any]) -> "GrownBeams":
        appended = list(request.appended_token_ids)
        sequences.check_position(held, request.base_length, appended, size)
        host.forget(held)
        sequences.commit(held, request.base_length, appended)
        plan = GrowthPlan(
            depth=request.num_speculative_tokens,
            width=request.num_beams,
            max_nodes=min(MAX_TREE_NODES, sequences.limits.max_model_len - held.length),
            stop_token_ids=frozenset(held.options.sampling.stop_token_ids),
        )
        growth = BeamGrowth(plan, decode_beams(request.tree, vocab_size), nodes, request.beam_scores)
        return await model.beams.grow(held, growth, vocab_size)

    store: Any = sequences  # its answers are proposals otherwise
    grown: GrownBeams = await store.step(request.sequence_id, request.step, ("beams", body_of(request)), compute)
    return pb.GrowBeamsResponse(
        instance_id=host.instance_id,
        step=request.step,
        grown=beams_pb2.BeamTree(token_ids=grown.tokens, parent_indices=grown.parents),
        queue_time_us=round(grown.queue_time * 1e6),
        compute_time_us=round(grown.compute_time * 1e6),
        rollback_time_ns=round(grown.rollback_time * 1e9),
        batch_size=grown.batch_size,
    )


def check_request(request: pb.GrowBeamsRequest, host: DraftHost) -> None:
    """Raises InvalidFieldError for numbers outside their limits."""
    check_sequence_id("sequence_id", request.sequence_id)
    check_count("appended_token_ids", len(request.appended_token_ids), host.sequences.limits.max_model_len)
    check_range("num_speculative_tokens", request.num_speculative_tokens, 1, host.max_num_speculative_tokens)
    check_range("num_beams", request.num_beams, 1, MAX_WIDTH)
    if len(request.beam_scores) != len(request.beam_nodes):
        problem = f"has {len(request.beam_scores)} entries for {len(request.beam_nodes)} beams"
        raise InvalidFieldError("beam_scores", problem)
    for index, score in enumerate(request.beam_scores):
        check_range(f"beam_scores[{index}]", score, -MOST_SCORE, MOST_SCORE)
