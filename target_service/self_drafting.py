"""The target proposes: it drafts for each verdict that was asked for it. Device thread only.

Where any tree is exact, a head that can drafts one; otherwise a chain.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from specpair.caches.holding import Holding
from specpair.drafting import draw_next
from specpair.engine.failures import check_device
from specpair.errors import CapacityExhaustedError
from specpair.models.drafting_runner import (
    DraftingRunner,
    DraftRun,
    TreeDraftingRunner,
    WholeDraftingRunner,
    WholeTreeDraftingRunner,
)
from specpair.speculation.randomness import LAST_STEP
from specpair.whole_drafting import chain_of, holding_of, needs_steps, take_all
from target_service.own_proposal import OwnDraft, OwnProposal
from target_service.tree_drafting import can_have_tree, draft_trees, draft_whole_trees
from target_service.verify_work import VerifyWork

log = logging.getLogger(__name__)

Draw: TypeAlias = Callable[[list[VerifyWork], list[OwnDraft]], None]
"""A way to draw the drafts of some works. Raises CapacityExhaustedError, MemoryError."""


class SelfDrafter:
    """Drafts for many sequences at once, one token or one level of each in a step."""

    def __init__(self, runner: DraftingRunner, max_model_len: int, vocab_size: int, tree_tokens: int):
        """Trees have at most `tree_tokens`; 0 for chains alone."""
        self._runner = runner
        self._whole = runner if isinstance(runner, WholeDraftingRunner) else None
        self._whole_trees = runner if isinstance(runner, WholeTreeDraftingRunner) else None
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._tree_tokens = tree_tokens

    def draft(self, works: list[VerifyWork]) -> float:
        """Gives each work with a verdict that asked for one a proposal. A failure leaves them without. Returns the
        seconds that it took, for which the whole pass waits."""
        asked = [work for work in works if work.done and work.error is None and self._count(work) > 0]
        if not asked:
            return 0.0
        started = time.perf_counter()
        ways: dict[Draw, list[tuple[VerifyWork, OwnDraft]]] = {}
        for work in asked:
            draft = self._begun(work)
            ways.setdefault(self._way(work, draft), []).append((work, draft))
        for draw, begun in ways.items():
            self._attempt(begun, draw)
        return time.perf_counter() - started

    def _attempt(self, begun: list[tuple[VerifyWork, OwnDraft]], draw: Draw) -> None:
        works, drafts = [work for work, _ in begun], [draft for _, draft in begun]
        try:
            draw(works, drafts)
        except (CapacityExhaustedError, MemoryError) as error:
            if len(works) > 1:  # the others have room
                for work in works:
                    self._attempt([(work, self._begun(work))], draw)
            elif isinstance(error, MemoryError):  # a full cache is usual, and has a metric
                log.warning("there is no memory to draw the head's proposal: a sequence goes on without one")
            return
        except Exception as error:
            check_device(error)
            log.exception("the head failed")
            return
        for work, draft in begun:
            self._take(work, draft)

    def _take(self, work: VerifyWork, draft: OwnDraft) -> None:
        """Gives a work what was drawn for it."""
        try:
            work.own_proposal = OwnProposal.of(draft, self._vocab_size)
        except Exception as error:
            check_device(error)
            log.exception("what the head drew cannot be sent")

    def _way(self, work: VerifyWork, draft: OwnDraft) -> Draw:
        if self._has_tree(work):
            return self._draw_whole_trees if self._is_grown_whole(draft) else self._draw_trees
        return self._draw_whole if self._is_drawn_whole(draft) else self._draw_by_steps

    def _begun(self, work: VerifyWork) -> OwnDraft:
        """A draft for the work, of which nothing is drawn yet."""
        least = work.call.next_min_confidence if self._runner.takes_steps else 0.0
        return OwnDraft.after(work.held, work.sequence.tokens, work.step + 1, self._count(work), least)

    def _count(self, work: VerifyWork) -> int:
        """Tokens to draft: the proposal and the target's next token must fit the sequence. None after the last
        step, for a sequence whose drafter another target has, nor after a tree where the next token is fed at once."""
        if work.step == LAST_STEP or work.options.drafter not in (None, *self._runner.drafters):
            return 0
        if self._runner.feeds_itself and work.parents is not None:
            return 0
        return min(work.call.next_count, self._runner.most_tokens, self._room(work))

    def _room(self, work: VerifyWork) -> int:
        return self._max_model_len - len(work.sequence.tokens) - 1

    def _has_tree(self, work: VerifyWork) -> bool:
        return self._tree_tokens > 0 and can_have_tree(work.options)

    def _is_grown_whole(self, draft: OwnDraft) -> bool:
        return self._whole_trees is not None and self._whole_trees.refusal(draft.options) is None

    def _draw_whole_trees(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        assert self._whole_trees is not None
        draft_whole_trees(self._whole_trees, works, drafts, [places(work) for work in works], self._most_nodes(works))

    def _most_nodes(self, works: list[VerifyWork]) -> list[int]:
        return [min(self._tree_tokens, self._room(work)) for work in works]

    def _draw_trees(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        assert isinstance(self._runner, TreeDraftingRunner)
        draft_trees(self._runner, works, drafts, [places(work) for work in works], self._most_nodes(works))

    def _is_drawn_whole(self, draft: OwnDraft) -> bool:
        if self._whole is None or needs_steps(draft) is not None:
            return False
        return self._whole.refusal(draft.options) is None

    def _draw_whole(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        assert self._whole is not None
        run = self._whole.begin(*self._sequences(works), max(draft.count for draft in drafts))
        newest = [draft.sequence.tokens[-1] for draft in drafts]
        chains = [
            chain_of(draft, holding_of(work.sequence), run.vocab_size)
            for work, draft in zip(works, drafts, strict=True)
        ]
        for draft, drawn in zip(drafts, run.draw(newest, chains), strict=True):
            take_all(draft, drawn)

    def _draw_by_steps(self, works: list[VerifyWork], drafts: list[OwnDraft]) -> None:
        if self._runner.feeds_itself:
            for work in works:
                work.sequence.valid_length = min(work.sequence.valid_length, len(work.sequence.tokens) - 1)
        run = self._runner.begin(*self._sequences(works), max(draft.count for draft in drafts))
        draw_by_steps(run, drafts)

    def _sequences(self, works: list[VerifyWork]) -> tuple[list[Holding], list[Sequence[int]]]:
        """What the cache has of the works, and where."""
        return [holding_of(work.sequence) for work in works], [places(work) for work in works]


def draw_by_steps(run: DraftRun, drafts: list[OwnDraft]) -> None:
    """Draws the drafts of a run, one token of each in a step."""
    while rows := [row for row, draft in enumerate(drafts) if not draft.done]:
        going, newest = [drafts[row] for row in rows], [drafts[row].sequence.tokens[-1] for row in rows]
        draw_next(going, run.logits(newest, rows))


def places(work: VerifyWork) -> Sequence[int]:
    """Where the cache has the tokens of a judged work before its next token: a path is not moved together yet."""
    start = len(work.sequence.tokens) - 1 - len(work.path)
    if work.parents is None:
        return range(start + len(work.path))
    return [*range(start), *(start + index for index in work.path)]
