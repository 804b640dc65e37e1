"""Drafter: the draft model, which works ahead."""

from collections.abc import Awaitable

from draft_service.ahead.ahead import WorkAhead
from draft_service.ahead.branch import finished
from draft_service.drafters.model import ModelDrafter, WorkRunner
from draft_service.proposal import AheadOrder, Deliver, Drafted, ProposeCall
from specpair.sequences.held_sequence import HeldSequence


class AheadDrafter(ModelDrafter):
    """The draft model, with proposals that are prepared before they are asked for."""

    def __init__(self, engine: WorkRunner, ahead: WorkAhead):
        super().__init__(engine)
        self._ahead = ahead

    def prepared(self, held: HeldSequence[Drafted], call: ProposeCall) -> Awaitable[Drafted | None] | None:
        branch = self._ahead.claim(held, call)
        return None if branch is None else finished(branch, held)

    def ready(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted | None:
        branch = self._ahead.claim(held, call) if self._ahead.has_ready(held, call) else None
        return None if branch is None else branch.drafted()

    def pass_over(self, held: HeldSequence[Drafted], call: ProposeCall) -> None:
        self._ahead.pass_over(held, call)

    def work_ahead(
        self, held: HeldSequence[Drafted], call: ProposeCall, drafted: Drafted, order: AheadOrder, deliver: Deliver
    ) -> None:
        self._ahead.begin(held, call, drafted, order, deliver)

    def forget(self, held: HeldSequence[Drafted]) -> None:
        self._ahead.forget(held.cached)
