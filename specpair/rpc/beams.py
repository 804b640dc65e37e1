"""Names of beam search in messages."""

from specpair.errors import InvalidFieldError
from specpair.speculation.beams.beam_options import EarlyStopping
from specpair.v1 import coordinator_service_pb2 as pb

_NUMBERS = {
    EarlyStopping.HEURISTIC: pb.EARLY_STOPPING_HEURISTIC,
    EarlyStopping.FIRST: pb.EARLY_STOPPING_FIRST,
    EarlyStopping.NEVER: pb.EARLY_STOPPING_NEVER,
}
_NAMES: dict[int, EarlyStopping] = {number: name for name, number in _NUMBERS.items()}


def early_stopping_from_proto(number: int) -> EarlyStopping:
    """The default for the unspecified one. Raises InvalidFieldError for an unknown number."""
    if number == pb.EARLY_STOPPING_UNSPECIFIED:
        return EarlyStopping.HEURISTIC
    if number not in _NAMES:
        raise InvalidFieldError("early_stopping", f"is {number}, which is no known value")
    return _NAMES[number]


def early_stopping_to_proto(name: EarlyStopping | None) -> pb.EarlyStopping:
    return pb.EARLY_STOPPING_UNSPECIFIED if name is None else _NUMBERS[name]
