"""The part of an output that comes from one round."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator.outputs.round_report import RoundReport
from specpair.v1.logprobs_pb2 import TokenLogprobs


class Origin(StrEnum):
    """Where a token came from."""

    ACCEPTED = "accepted"
    CORRECTION = "correction"
    BONUS = "bonus"
    TARGET = "target"
    FORCED = "forced"


@dataclass(frozen=True, kw_only=True)
class OutputPart:
    """The tokens of one round that belong to the output, and the text that is now final."""

    token_ids: Sequence[int] = ()
    origins: Sequence[Origin] = ()
    """One for each token."""
    text: str
    is_last: bool
    """Whether the output ends with this part."""
    logprobs: Sequence[TokenLogprobs] = ()
    """One for each token, if the target was asked for them."""
    rejected_ids: Sequence[int] = ()
    report: RoundReport | None = None
    """How the round went, if requested."""
