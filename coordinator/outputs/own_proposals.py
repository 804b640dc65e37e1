"""Proposals of the target's own head: each comes with a verdict, for the round after it."""

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.round import Round
from coordinator.pair import Pair
from coordinator.peers import OwnOrder, Proposed, no_time, run_within
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

    The number of tokens for a round is decided two calls before: it depends on earlier rounds alone, and the target
    knows it when it goes on from one round to the next by itself. A call may be for a run of rounds.
    """

    def __init__(self, run_seconds: float) -> None:
        """`run_seconds` is how long a run may take; 0 for single rounds."""
        self._run_seconds = run_seconds
        self._decision = Decision(0)
        self._following: tuple[Decision, OwnOrder] | None = None
        """What the target knows of the next order already, and the decision behind it; None before the first."""
        self._offered: Proposal | None = None

    def take(self, begun: Round, longest: int, newest: Decision, length: OutputLength, left: int, after: int) -> None:
        """Gives a round its proposal, cut to `longest` tokens, and orders the next one, of `after` tokens at most.
        `left` tokens of the output may come in runs."""
        decision, offered = self._decision, self._offered
        length.use(decision)
        begun.asked_count = min(decision.length, longest)
        if offered is not None and begun.asked_count:
            begun.take(Proposed(proposal=beginning(offered, begun.asked_count), times=no_time()))
        self.order(begun, after, newest, left, length.plain_rounds)

    def order(self, begun: Round, longest: int, newest: Decision, left: int, plain_rounds: int | None = None) -> None:
        """Has the target propose at most `longest` tokens for the round after `begun`. For the round after that it is
        told the `newest` decision in advance, so it can go on by itself, for `plain_rounds` rounds at most, if they
        are counted."""
        decision, order = (newest, order_by(newest)) if self._following is None else self._following
        begun.order = order.within(left, begun.depth, longest)
        self._decision = decision._replace(length=begun.order.count)
        after = left - begun.most_tokens
        if not newest.length and plain_rounds is not None:
            after = min(after, 2 * plain_rounds)
        seconds = 0.0 if newest.is_probe else self._run_seconds
        begun.following_order = run_within(seconds, after, order_by(newest))
        self._following, self._offered = (newest, begun.following_order), None

    def give_up_runs(self, begun: Round) -> None:
        """The round, and all that follow, are asked for one by one."""
        self._run_seconds = 0.0
        if self._following is not None:
            decision, order = self._following
            self._following = decision, order.alone
            begun.following_order = order.alone

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
