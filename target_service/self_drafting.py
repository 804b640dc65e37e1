"""The target proposes: it drafts for each verdict that was asked for it. Device thread only.

Where any tree is exact, a head that can drafts one; otherwise a chain.
"""

import logging
from collections.abc import Callable, Sequence

from torch import Tensor

from specpair.drafting import draw_next, reads_only_the_likeliest, take_likeliest
from specpair.engine.failures import check_device
from specpair.errors import CapacityExhaustedError
from specpair.models.chains import WholeDraft
from specpair.models.drafting_runner import DraftingRunner, DraftRun, HeadDraft, TreeDraftingRunner
from specpair.models.native_chain_rows import refusal
from specpair.models.output_tokens import OutputTokens
from specpair.speculation.sampling import likeliest
from specpair.whole_drafting import chain_of, needs_steps, take_all
from target_service.own_proposal import OwnDraft
from target_service.tree_drafting import can_have_tree, draft_trees
from target_service.verify_work import VerifyWork

log = logging.getLogger(__name__)


class SelfDrafter:
    """Drafts for many sequences at once, one token or one level of each in a step."""

    def __init__(self, runner: DraftingRunner, max_model_len: int, tree_tokens: int):
        """Trees have at most `tree_tokens`; 0 for chains alone."""
        self._runner = runner
        self._max_model_len = max_model_len
        self._tree_tokens = tree_tokens

    def draft(self, works: list[VerifyWork]) -> None:
        """Gives each work with a verdict that asked for one a proposal. A failure leaves them without."""
        asked = [work for work in works if work.done and work.error is None and self._count(work) > 0]
        if not asked:
            return
        trees = [work for work in asked if self._has_tree(work)]
        chains = [work for work in asked if not self._has_tree(work)]
        for some, draft in ((trees, self._draft_trees), (chains, self._draft_chains)):
            if some:
                self._attempt(some, draft)

    def _attempt(self, asked: list[VerifyWork], draft: Callable[[list[VerifyWork], list[OwnDraft]], None]) -> None:
        for work in asked:
            count, least = self._count(work), work.call.next_min_confidence
            work.own_draft = OwnDraft.after(work.held, work.sequence.tokens, work.call.step + 1, count, least)
        try:
            draft(asked, [work.own_draft for work in asked if work.own_draft is not None])
        except CapacityExhaustedError:
            drop(asked)
            if len(asked) > 1:  # the others have room
                for work in asked:
                    self._attempt([work], draft)
        except Exception as error:
            check_device(error)
            log.exception("the head failed")
            drop(asked)

    def _count(self, work: VerifyWork) -> int:
        """Tokens to draft: the proposal and the target's next token must fit the sequence. None for a sequence whose
        drafter another target has, nor after a tree where the next token is fed at once."""
        if work.options.drafter not in (None, *self._runner.drafters):
            return 0
        if self._runner.feeds_itself and work.parents is not None:
            return 0
        return min(work.call.next_count, self._runner.most_tokens, self._room(work))

    def _room(self, work: VerifyWork) -> int:
        return self._max_model_len - len(work.sequence.tokens) - 1

    def _has_tree(self, work: VerifyWork) -> bool:
        return self._tree_tokens > 0 and can_have_tree(work.options)

    def _draft_trees(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        assert isinstance(self._runner, TreeDraftingRunner)
        most = [min(self._tree_tokens, self._room(work)) for work in works]
        draft_trees(self._runner, works, drafts, [places(work) for work in works], most)

    def _draft_chains(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        """Those that a head can draw whole are drawn together, the others step by step."""
        pairs = list(zip(works, drafts, strict=True))
        for some in ([pair for pair in pairs if is_whole(pair[1])], [pair for pair in pairs if not is_whole(pair[1])]):
            if some:
                self._draft_together([work for work, _ in some], [draft for _, draft in some])

    def _draft_together(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        holdings = [work.sequence.holding for work in works if work.sequence.holding is not None]
        if self._runner.feeds_itself:
            for work in works:
                work.sequence.valid_length = min(work.sequence.valid_length, len(work.sequence.tokens) - 1)
        most = max(draft.count for draft in drafts)
        run = self._runner.begin(holdings, [places(work) for work in works], most)
        if isinstance(run, WholeDraft) and is_whole(drafts[0]):
            newest = [draft.sequence.tokens[-1] for draft in drafts]
            chains = [chain_of(draft, holding, run.vocab_size) for draft, holding in zip(drafts, holdings, strict=True)]
            for draft, drawn in zip(drafts, run.draw(newest, chains), strict=True):
                take_all(draft, drawn)
        else:
            draft_by_steps(run, drafts)


def is_whole(draft: OwnDraft) -> bool:
    """Whether compiled calls could draw the proposal whole."""
    return needs_steps(draft) is None and refusal(draft.options) is None


def draft_by_steps(run: DraftRun, drafts: list[OwnDraft]) -> None:
    """Draws the drafts of a run, one token of each in a step."""
    is_narrow = all(reads_only_the_likeliest(draft) for draft in drafts)
    while rows := [row for row, draft in enumerate(drafts) if not draft.done]:
        going, newest = [drafts[row] for row in rows], [drafts[row].sequence.tokens[-1] for row in rows]
        if is_narrow and isinstance(run, HeadDraft):
            take_narrow(going, run.narrow_logits(newest, rows), run.outputs)
        else:
            draw_next(going, run.logits(newest, rows))


def drop(works: list[VerifyWork]) -> None:
    """Leaves works without a proposal."""
    for work in works:
        work.own_draft = None


def take_narrow(drafts: list[OwnDraft], logits: Tensor, outputs: OutputTokens | None) -> None:
    """Adds the likeliest token to each draft, without a row of the whole vocabulary. It is the one that `draw_next`
    takes: outputs ascend, so the first of several is the same."""
    places, finite = likeliest(logits)
    take_likeliest(drafts, places.tolist() if outputs is None else outputs.name(places.tolist()), finite)


def places(work: VerifyWork) -> Sequence[int]:
    """Where the cache has the tokens of a judged work before its next token: a path is not moved together yet."""
    start = len(work.sequence.tokens) - 1 - len(work.path)
    if work.parents is None:
        return range(start + len(work.path))
    return [*range(start), *(start + index for index in work.path)]
