"""Logprobs of the prompt's tokens, from a target."""

from collections.abc import Sequence

from coordinator.deadline import Deadline
from coordinator.peers.answers import Scores
from coordinator.peers.backoff import Backoff
from coordinator.peers.failures import AWAY, is_out_of_time
from coordinator.peers.recovery import Recovery
from coordinator.peers.target_session import CALL_SECONDS, LEAST_TOKENS_PER_SECOND, MOST_REPEATS
from coordinator.peers.targets import Targets
from specpair.errors import (
    CapacityExhaustedError,
    ForwardFailedError,
    PeerUnavailableError,
    SpecpairError,
    VocabularyMismatchError,
)
from specpair.v1.logprobs_pb2 import TokenLogprobs


async def score_prompt(
    targets: Targets, prompt_ids: Sequence[int], top_count: int | None, patience: float, deadline: Deadline
) -> Sequence[TokenLogprobs]:
    """One entry for each token of the prompt but the first, with `top_count` alternatives; empty if that is None.

    Raises PeerUnavailableError if no target answers for `patience` seconds or, if the client has one, until its
    deadline.
    """
    if top_count is None:
        return ()
    scores = await _score(targets, prompt_ids, top_count, patience, deadline)
    if len(scores.logprobs) != len(prompt_ids) - 1:
        raise SpecpairError(f"the target sent {len(scores.logprobs)} scores for {len(prompt_ids)} tokens")
    return scores.logprobs


async def _score(
    targets: Targets, token_ids: Sequence[int], top_count: int, patience: float, deadline: Deadline
) -> Scores:
    def tries() -> Backoff:
        return Backoff("target", deadline.or_after(patience), targets.news)

    async def pause(error: SpecpairError) -> None:
        targets.recoveries[Recovery.REPEATED] += 1
        await backoff.pause(error)

    latest = Deadline.after(patience + len(token_ids) / LEAST_TOKENS_PER_SECOND)
    backoff, link, repeat_count = tries(), None, 0
    while True:
        link = link if link is not None and link.is_usable else targets.choose(token_ids)
        if link is None:
            await backoff.pause(PeerUnavailableError("no target is available"))
            continue
        within = backoff.deadline.at_most(CALL_SECONDS)
        try:
            scores = await link.peer.score(token_ids, top_count, within)
            await link.confirm(scores.instance_id, within)
            link.welcome()
            return scores
        except VocabularyMismatchError:
            if not (link.is_released or targets.has_better(link)):
                raise
            link = None
        except CapacityExhaustedError as error:
            link = None  # perhaps another has room
            await pause(error)
        except ForwardFailedError as error:
            repeat_count += 1
            if repeat_count > MOST_REPEATS:
                raise
            await pause(error)
        except AWAY as error:
            if deadline.is_over:  # the client's deadline passed: no failure of the target
                backoff.check(error)
            if is_out_of_time(error) and link.is_there and not latest.is_over:
                backoff = tries()
                await pause(error)  # the call may have failed long before its timeout
                continue
            link.fail(error)
            if link.is_released or targets.has_better(link):
                link = None
            await pause(error)
