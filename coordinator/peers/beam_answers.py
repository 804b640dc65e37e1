"""Answers to the calls of a beam search, as plain data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.peers.answers import CallTimes
from specpair.errors import SpecpairError
from specpair.speculation.beams.beam_search import Continuation
from specpair.v1 import target_service_pb2


@dataclass(frozen=True, kw_only=True)
class TreeRows:
    """What the target says of the asked nodes."""

    rows: Sequence[Sequence[Continuation]]
    """For each asked node the likeliest tokens after it, most likely first."""
    times: CallTimes
    cached_token_count: int = 0
    """Tokens of the sequence that the target had in its cache when it opened it."""


def tree_rows(
    request: target_service_pb2.ScoreTreeRequest, response: target_service_pb2.ScoreTreeResponse, times: CallTimes
) -> TreeRows:
    """The rows of an answer. Raises SpecpairError if it does not fit the request."""
    asked, count = len(request.asked_nodes), request.logprobs
    if not len(response.token_ids) == len(response.logprobs) == asked * count:
        raise SpecpairError(f"the target sent {len(response.logprobs)} logprobs for {asked} nodes with {count} each")
    if any(math.isnan(logprob) for logprob in response.logprobs):
        raise SpecpairError("the target sent a logprob that is no number")
    pairs = list(map(Continuation, response.token_ids, response.logprobs))
    rows = [pairs[first : first + count] for first in range(0, len(pairs), count)]
    return TreeRows(rows=rows, times=times, cached_token_count=response.cached_token_count)
