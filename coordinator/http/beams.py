"""Beam search in HTTP's parameters: vLLM's and transformers' names."""

from coordinator.http.parameters import GenerationParameters
from specpair.errors import InvalidFieldError
from specpair.rpc.beams import early_stopping_to_proto
from specpair.speculation.beams.beam_options import EarlyStopping
from specpair.v1 import coordinator_service_pb2 as pb

_STOPPING: dict[bool | str, EarlyStopping] = {
    False: EarlyStopping.HEURISTIC,
    True: EarlyStopping.FIRST,
    "never": EarlyStopping.NEVER,
}


def beam_count(parameters: GenerationParameters) -> int | None:
    """The number of beams; None without beam search. Raises InvalidFieldError if they are asked for and refused."""
    if parameters.use_beam_search is None:
        return parameters.num_beams
    if not parameters.use_beam_search and parameters.num_beams is not None:
        raise InvalidFieldError("use_beam_search", "is false, but num_beams asks for beam search")
    if not parameters.use_beam_search:
        return None
    return (parameters.n or 1) if parameters.num_beams is None else parameters.num_beams


def set_beams(request: pb.GenerateTokensRequest, parameters: GenerationParameters) -> None:
    """Sets what the parameters say of beam search. transformers' False needs no beam search: it is the default."""
    count = beam_count(parameters)
    if count is not None:
        request.num_beams = count
    if parameters.length_penalty is not None:
        request.length_penalty = parameters.length_penalty
    if parameters.early_stopping:
        request.early_stopping = early_stopping_to_proto(_STOPPING[parameters.early_stopping])
