"""Which drafts propose for an output: a session at one of them, or at several at once, or the text itself."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.deadline import Deadline
from coordinator.outputs.own_proposals import own_drafter
from coordinator.outputs.text_draft import TextDraft
from coordinator.pair import Pair
from coordinator.peers import Drafts, DraftSession
from coordinator.peers.merged_session import MergedSession
from coordinator.peers.proposal_source import ProposalSource
from coordinator.requests.request import GenerationRequest
from specpair.options import FROM_TEXT, Drafter, SequenceOptions


def proposal_source(
    request: GenerationRequest, pair: Pair, sequence_id: str, options: SequenceOptions, deadline: Deadline
) -> ProposalSource | None:
    """The drafts that the request is for; None if there are none, or if the target itself proposes."""
    if own_drafter(request, pair) is not None or not can_propose(request, pair):
        return None
    config, prompt_length = pair.config, len(request.prompt_ids)

    def open_at(names: Sequence[str], sequence: str, own: SequenceOptions) -> ProposalSource:
        if (drafter := text_drafter(names, own.drafter)) is not None:
            return TextDraft(drafter, own, prompt_length, config.max_num_speculative_tokens, config.draft_cooldown)
        drafts, named = chosen(pair, names)
        own = own if named is None else replace(own, drafter=named)
        times = (config.draft_timeout, config.draft_cooldown)
        return DraftSession(drafts, sequence, prompt_length, own, *times, deadline=deadline)

    if request.merges:
        return MergedSession(_each(request.drafts, options, sequence_id, open_at), config.merge_wait)
    return open_at(request.drafts, sequence_id, options)


def can_propose(request: GenerationRequest, pair: Pair) -> bool:
    """Whether anything may propose tokens: a draft service, a head of the target, or the text."""
    is_local = any(name in FROM_TEXT for name in (*request.drafts, request.drafter))
    return pair.draft is not None or is_local or own_drafter(request, pair) is not None


def _each(
    names: Sequence[str],
    options: SequenceOptions,
    sequence_id: str,
    open_at: Callable[[Sequence[str], str, SequenceOptions], ProposalSource],
) -> dict[str, ProposalSource]:
    """A source for each name. Each has its place, so that their draws are independent, and a sequence of its own."""
    return {
        name: open_at([name], f"{sequence_id}.{place}", replace(options, drafter=None, draft_index=place))
        for place, name in enumerate(names, start=1)
    }


def text_drafter(names: Sequence[str], drafter: Drafter | None) -> Drafter | None:
    """The drafter that reads nothing but the text, if a request names one, as its drafter or as its only draft."""
    named = names[0] if drafter is None and len(names) == 1 else drafter
    return Drafter(named) if named in FROM_TEXT else None


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
