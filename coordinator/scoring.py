"""How likely the target finds the prompt itself."""

import time
from collections.abc import Sequence

import grpc

from coordinator.backoff import Backoff
from coordinator.pair import Pair
from coordinator.peer import AWAY, Scores
from coordinator.request import GenerationRequest
from specpair.errors import PeerUnavailableError, SpecpairError
from specpair.v1.logprobs_pb2 import TokenLogprobs

CALL_SECONDS = 20.0
"""Of one call; a long text takes several."""
LEAST_TOKENS_PER_SECOND = 10.0
"""A target that is there and scores fewer is taken for one that hangs."""


async def score_prompt(request: GenerationRequest, pair: Pair) -> Sequence[TokenLogprobs]:
    """One entry for each token of the prompt but the first; none if the request does not want them.

    Raises PeerUnavailableError when the target stays away.
    """
    if request.prompt_logprobs is None:
        return ()
    scores = await _score(request.prompt_ids, request.prompt_logprobs, pair)
    if len(scores.logprobs) != len(request.prompt_ids) - 1:
        raise SpecpairError(f"the target sent {len(scores.logprobs)} scores for {len(request.prompt_ids)} tokens")
    return scores.logprobs


async def _score(token_ids: Sequence[int], top_count: int, pair: Pair) -> Scores:
    patience = pair.config.target_timeout
    latest = time.monotonic() + patience + len(token_ids) / LEAST_TOKENS_PER_SECOND
    backoff, link = Backoff("target", patience, pair.target.news), None
    while True:
        link = link if link is not None and link.is_usable else pair.target.choose(token_ids)
        if link is None:
            await backoff.pause(PeerUnavailableError("no target is there"))
            continue
        try:
            scores = await link.peer.score(token_ids, top_count, min(CALL_SECONDS, backoff.remaining))
            await link.confirm(scores.instance_id)
            return scores
        except AWAY as error:
            if is_out_of_time(error) and link.is_there and time.monotonic() < latest:
                backoff = Backoff("target", patience, pair.target.news)
                continue
            link.fail(error)
            await backoff.pause(error)


def is_out_of_time(error: SpecpairError) -> bool:
    """Whether the call only took too long: the target keeps what it has come to, and the same call goes on there."""
    return error.metadata.get("code") == grpc.StatusCode.DEADLINE_EXCEEDED.name
