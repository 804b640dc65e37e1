"""How likely the target finds the prompt itself."""

import time
from collections.abc import Sequence

from coordinator.backoff import Backoff
from coordinator.pair import Pair
from coordinator.peer import AWAY, Scores, is_out_of_time
from coordinator.request import GenerationRequest
from coordinator.target_session import CALL_SECONDS, LEAST_TOKENS_PER_SECOND
from specpair.errors import PeerUnavailableError, SpecpairError
from specpair.v1.logprobs_pb2 import TokenLogprobs


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
            link.welcome()
            return scores
        except AWAY as error:
            if is_out_of_time(error) and link.is_there and time.monotonic() < latest:
                backoff = Backoff("target", patience, pair.target.news)
                continue
            link.fail(error)
            if link.is_released or pair.target.has_better(link):
                link = None
            await backoff.pause(error)
