"""How likely the target finds the prompt itself."""

from collections.abc import Sequence

from coordinator.backoff import Backoff
from coordinator.pair import Pair
from coordinator.peer import AWAY
from coordinator.request import GenerationRequest
from specpair.errors import SpecpairError
from specpair.v1.logprobs_pb2 import TokenLogprobs


async def score_prompt(request: GenerationRequest, pair: Pair) -> Sequence[TokenLogprobs]:
    """One entry for each token of the prompt but the first; none if the request does not want them.

    Raises PeerUnavailableError when the target stays away.
    """
    if request.prompt_logprobs is None:
        return ()
    backoff = Backoff("target", pair.config.target_timeout)
    while True:
        try:
            scores = await pair.target.peer.score(request.prompt_ids, request.prompt_logprobs, backoff.remaining)
            await pair.target.confirm(scores.instance_id)
            break
        except AWAY as error:
            await backoff.pause(error)
    if len(scores.logprobs) != len(request.prompt_ids) - 1:
        raise SpecpairError(f"the target sent {len(scores.logprobs)} scores for {len(request.prompt_ids)} tokens")
    return scores.logprobs
