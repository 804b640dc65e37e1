"""Beam search in a request: its options, and what it cannot be combined with."""

from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.model_info import ModelInfo
from specpair.options import SamplingOptions, check_range
from specpair.rpc.beams import early_stopping_from_proto
from specpair.speculation.beams.beam_options import MAX_BEAMS, BeamOptions
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import drafter_pb2

_ONLY_WITH_BEAMS = ("length_penalty", "early_stopping")
_REFUSED = (
    *("stop_strings", "rule", "encoding", "lenience", "include_rejected", "include_rounds"),
    *("logprobs", "num_tree_tokens", "resumed_token_ids", "structured_output", "drafts", "merge"),
)
_REFUSED_SAMPLING = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "allowed_token_ids", "banned_token_ids"),
)
_DRAFTERS = (drafter_pb2.DRAFTER_UNSPECIFIED, drafter_pb2.DRAFTER_MODEL)


def check_beams(message: pb.GenerateTokensRequest) -> int | None:
    """The number of beams; None without beam search. Raises InvalidFieldError for it and for what contradicts it."""
    if not message.HasField("num_beams"):
        for name in _ONLY_WITH_BEAMS:
            if _is_given(message, name) or (name == "length_penalty" and message.HasField(name)):
                raise InvalidFieldError(name, "requires num_beams")
        return None
    check_range("num_beams", message.num_beams, 1, MAX_BEAMS)
    if message.HasField("n"):
        check_range("n", message.n, 1, message.num_beams)
    if message.HasField("best_of") and message.best_of != message.n:
        raise InvalidFieldError("best_of", "cannot be combined with num_beams; n is the number of beams to return")
    for name in _REFUSED:
        if _is_given(message, name):
            raise InvalidFieldError(name, "cannot be combined with num_beams")
    return message.num_beams


def read_beams(
    message: pb.GenerateTokensRequest, sampling: SamplingOptions, max_tokens: int, target: ModelInfo
) -> BeamOptions | None:
    """The options; None without beam search.

    Raises InvalidFieldError, or NotSupportedError if the target runs no beam search.
    """
    if check_beams(message) is None:
        return None
    if not target.runs_beams:
        raise NotSupportedError("num_beams: the target runs no beam search")
    _check_combinations(message, sampling)
    check_range("max_tokens", max_tokens, 1, target.max_model_len)
    options = BeamOptions(
        num_beams=message.num_beams,
        length_penalty=message.length_penalty if message.HasField("length_penalty") else 1.0,
        early_stopping=early_stopping_from_proto(message.early_stopping),
        max_tokens=max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=frozenset(sampling.stop_token_ids),
    )
    options.check_vocabulary(target.vocab_size)
    return options


def _check_combinations(message: pb.GenerateTokensRequest, sampling: SamplingOptions) -> None:
    if not sampling.is_greedy:
        problem = f"is {sampling.temperature:.6g}; beam search draws nothing: leave it out or set it to 0"
        raise InvalidFieldError("sampling.temperature", problem)
    plain = SamplingOptions()
    for name in _REFUSED_SAMPLING:
        if getattr(sampling, name) != getattr(plain, name):
            raise InvalidFieldError(f"sampling.{name}", "cannot be combined with num_beams")
    if message.drafter not in _DRAFTERS:
        raise InvalidFieldError("drafter", "cannot be combined with num_beams, whose beams the draft model continues")


def _is_given(message: pb.GenerateTokensRequest, name: str) -> bool:
    """Whether a field has a value other than the one that stands for nothing; num_tree_tokens = 0 asks for nothing."""
    if name in ("logprobs", "lenience", "structured_output"):
        return message.HasField(name)
    return bool(getattr(message, name))
