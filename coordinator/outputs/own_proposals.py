"""Proposals of the target's own head: each comes with a verdict, for the round after it."""

import time

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.round import Round
from coordinator.pair import Pair
from coordinator.peers import CallTimes, OwnOrder, Proposed
from coordinator.requests.request import GenerationRequest
from specpair.options import ON_THE_TARGET, Drafter
from specpair.speculation.trees.depths import depths
from specpair.v1.proposal_pb2 import Proposal


def own_drafter(request: GenerationRequest, pair: Pair) -> Drafter | None:
    """The drafter in the target that the request is for: the one that it names or, if it names none and there is no
    draft service, the target's first; None if something else proposes, or nothing does."""
    if request.drafter is not None or request.drafts or pair.draft is not None:
        return request.drafter if request.drafter in ON_THE_TARGET else None
    return next(iter(pair.target.info.drafters), None)


class OwnProposals:
    """What the target proposed for the next round of one output, and how much it was asked for.

    The number of tokens for a round is decided two rounds before: it depends on earlier rounds alone, and the target
    knows it when it goes on from one round to the next by itself.
    """

    def __init__(self) -> None:
        self._decision = Decision(0)
        self._following: Decision | None = None
        """What the target knows of the next order already; None before the first."""
        self._offered: Proposal | None = None

    def take(self, begun: Round, longest: int, newest: Decision, length: OutputLength) -> None:
        """Gives a round its proposal, cut to `longest` tokens, and orders the next one."""
        decision, offered = self._decision, self._offered
        length.use(decision)
        begun.asked_count = min(decision.length, longest)
        if offered is not None and begun.asked_count:
            begun.take(Proposed(proposal=beginning(offered, begun.asked_count), times=no_time()))
        self.order(begun, max(longest - 1, 0), newest)

    def order(self, begun: Round, longest: int, newest: Decision) -> None:
        """Has the target propose at most `longest` tokens for the round after `begun`. For the round after that it is
        told the `newest` decision in advance, so it can go on by itself."""
        decision = newest if self._following is None else self._following
        self._decision = decision._replace(length=min(decision.length, longest))
        self._following, self._offered = newest, None
        begun.order, begun.following_order = order_by(self._decision), order_by(newest)

    def keep(self, offered: Proposal | None) -> None:
        """Keeps what came with the verdict."""
        self._offered = offered


def order_by(decision: Decision) -> OwnOrder:
    return OwnOrder(decision.length, decision.min_confidence)


def beginning(offered: Proposal, count: int) -> Proposal:
    """The first tokens of a proposal, or the first levels of a tree, to be repeated to the target that made it."""
    if offered.parent_indices:
        return shallower(offered, count)
    distributions = offered.distributions if offered.HasField("distributions") else None
    return Proposal(token_ids=offered.token_ids[:count], distributions=distributions)


def shallower(offered: Proposal, count: int) -> Proposal:
    """The nodes of a tree that are at most `count` deep."""
    kept: dict[int, int] = {-1: -1}
    for node, (parent, depth) in enumerate(zip(offered.parent_indices, depths(offered.parent_indices), strict=True)):
        if depth <= count and parent in kept:
            kept[node] = len(kept) - 1
    nodes = [node for node in kept if node >= 0]
    return Proposal(
        token_ids=[offered.token_ids[node] for node in nodes],
        parent_indices=[kept[offered.parent_indices[node]] for node in nodes],
    )


def no_time() -> CallTimes:
    """The proposal was there when the round began."""
    return CallTimes(started_at=time.perf_counter(), elapsed=0.0, queue=0.0, compute=0.0)
