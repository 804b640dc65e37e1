"""What one round gave a client."""

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


@dataclass(frozen=True, kw_only=True)
class OutputPart:
    """The tokens of one round that belong to the output, and the text that became certain."""

    token_ids: Sequence[int] = ()
    origins: Sequence[Origin] = ()
    """One for each token."""
    text: str
    is_last: bool
    """Whether the output ended with it."""
    logprobs: Sequence[TokenLogprobs] = ()
    """One for each token, if the target was asked for them."""
    rejected_ids: Sequence[int] = ()
    report: RoundReport | None = None
    """How the round went, if that is wanted."""
