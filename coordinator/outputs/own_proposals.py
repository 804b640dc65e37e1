"""Proposals of the target's own head: each comes with a verdict, for the round after it."""

from coordinator.adaptive import PLAIN, Decision, OutputLength
from coordinator.outputs.round import Round
from coordinator.pair import Pair
from coordinator.peers import CallTimes, OwnOrder, Proposed, Verdict, no_time, run_within, time_until_now
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
        self._decision = PLAIN
        """For the first round of the next call."""
        self._following: tuple[Decision, OwnOrder] | None = None
        """What the target knows of the next order already, and the decision behind it; None before the first."""
        self._offered: Proposal | None = None
        self._times: CallTimes = no_time()
        """Of what was offered."""
        self._cuts_run = False
        """Whether the latest call has one round, where it would have had more, because it orders a probe."""

    def take(self, begun: Round, longest: int, length: OutputLength, left: int, after: int) -> None:
        """Gives a round its proposal, cut to `longest` tokens, and orders the next one, of `after` tokens at most,
        before which at least one token is committed. `left` tokens of the output may come in runs."""
        newest = length.decide(after, may_probe=not self._has_probe)
        decision, offered = self._decision, self._offered
        length.use(decision)
        begun.asked_count = min(decision.length, longest)
        begun.proposing_before = self._times.compute
        if offered is not None and begun.asked_count:
            begun.take(Proposed(proposal=beginning(offered, begun.asked_count), times=self._times))
        self.order(begun, after, newest, left, length.plain_rounds)

    def order(self, begun: Round, longest: int, newest: Decision, left: int, plain_rounds: int | None = None) -> None:
        """Has the target propose at most `longest` tokens for the round after `begun`. For the round after that it is
        told the `newest` decision in advance, so it can go on by itself, for `plain_rounds` rounds at most, if they
        are counted."""
        if self._following is None:
            decision, order = newest, order_by(newest)
            newest = PLAIN if newest.is_probe else newest  # it is made once
        else:
            decision, order = self._following
        begun.order = order.within(left, begun.depth, longest)
        count = begun.order.count
        self._decision = decision._replace(length=count, is_probe=decision.is_probe and count > 0)
        self._cuts_run = self._decision.is_probe and self._run_seconds > 0.0 and left > 2
        after = left - begun.most_tokens
        if not newest.length and plain_rounds is not None:
            after = min(after, 2 * plain_rounds)
        seconds = 0.0 if newest.is_probe else self._run_seconds
        begun.following_order = run_within(seconds, after, order_by(newest))
        self._following, self._offered = (newest, begun.following_order), None

    @property
    def _has_probe(self) -> bool:
        """Whether a probe was decided on that is not judged."""
        return self._decision.is_probe or (self._following is not None and self._following[0].is_probe)

    def learn(self, judged: Round, length: OutputLength, *, is_first: bool) -> None:
        """Has `length` learn from a round of the latest call. Those after the `is_first` one followed the order that
        was made with the call."""
        if not is_first:
            length.use(self._decision)
        length.add(judged)
        if self._cuts_run:
            length.pay_delay(judged)

    def give_up_runs(self, begun: Round) -> None:
        """The round, and all that follow, are asked for one by one."""
        self._run_seconds = 0.0
        if self._following is not None:
            decision, order = self._following
            self._following = decision, order.alone
            begun.following_order = order.alone

    def keep(self, verdict: Verdict) -> None:
        """Keeps what came with the verdict, which has just come."""
        seconds = verdict.proposing_share if self._decision.length else 0.0  # else it was for others
        self._offered, self._times = verdict.proposal, time_until_now(seconds)


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
