"""How likely the target finds the prompt itself."""

from collections.abc import Sequence

from coordinator.backoff import Backoff
from coordinator.pair import Pair
from coordinator.peer import AWAY, Scores
from coordinator.request import GenerationRequest
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
    backoff = Backoff("target", pair.config.target_timeout, pair.target.news)
    while True:
        link = pair.target.choose(token_ids)
        if link is None:
            await backoff.pause(PeerUnavailableError("no target is there"))
            continue
        try:
            scores = await link.peer.score(token_ids, top_count, backoff.remaining)
            await link.confirm(scores.instance_id)
            return scores
        except AWAY as error:
            link.fail(error)
            await backoff.pause(error)
