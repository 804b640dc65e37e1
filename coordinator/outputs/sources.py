"""Which drafts propose for an output: a session at one of them, or at several at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.deadline import Deadline
from coordinator.pair import Pair
from coordinator.peers import Drafts, DraftSession
from coordinator.peers.merged_session import MergedSession
from coordinator.peers.proposal_source import ProposalSource
from coordinator.requests.request import GenerationRequest
from specpair.options import Drafter, SequenceOptions


def proposal_source(
    request: GenerationRequest, pair: Pair, sequence_id: str, options: SequenceOptions, deadline: Deadline
) -> ProposalSource | None:
    """The drafts that the request is for; None without a draft service."""
    if pair.draft is None:
        return None
    config = pair.config

    def open_at(drafts: Drafts, name: str, own: SequenceOptions) -> DraftSession:
        times = (config.draft_timeout, config.draft_cooldown)
        return DraftSession(drafts, name, len(request.prompt_ids), own, *times, deadline=deadline)

    if len(request.drafts) < 2:
        drafts, drafter = chosen(pair, request.drafts)
        return open_at(drafts, sequence_id, options if drafter is None else replace(options, drafter=drafter))
    return MergedSession(_each(request.drafts, pair, options, sequence_id, open_at), config.merge_wait)


def _each(
    names: Sequence[str],
    pair: Pair,
    options: SequenceOptions,
    sequence_id: str,
    open_at: Callable[[Drafts, str, SequenceOptions], DraftSession],
) -> dict[str, ProposalSource]:
    """A session for each name. Each has its place, so that their draws are independent, and a sequence of its own."""
    sources: dict[str, ProposalSource] = {}
    for place, name in enumerate(names, start=1):
        drafts, drafter = chosen(pair, [name])
        own = replace(options, drafter=drafter, draft_index=place)
        sources[name] = open_at(drafts, f"{sequence_id}.{place}", own)
    return sources


def chosen(pair: Pair, names: Sequence[str]) -> tuple[Drafts, Drafter | None]:
    """The draft that a name stands for, and its drafter if the name is that of one. Without a name, the first draft."""
    assert pair.draft is not None
    if not names:
        return pair.draft, None
    if names[0] in pair.drafts:
        return pair.drafts[names[0]], None
    drafter = Drafter(names[0])
    having = (drafts for drafts in pair.drafts.values() if drafts.info is not None and drafter in drafts.info.drafters)
    return next(having, pair.draft), drafter
