"""What the target is asked to propose, and what of it the next round takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive import Decision, LengthController, OutputLength
from coordinator.adaptive.group import Group
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.metrics import RoundKind
from coordinator.outputs.acceptance import Acceptance
from coordinator.outputs.own_proposals import OwnProposals, beginning
from coordinator.outputs.round import Round
from coordinator.outputs.round_report import RoundReport
from coordinator.peers import NO_ORDER, CallTimes, OwnOrder, RunCounts, Verdict
from specpair.options import Drafter, Rule
from specpair.v1.proposal_pb2 import Proposal


def plain_round(step: int = 1) -> Round:
    return Round(step=step, rule=Rule.TOKEN)


def test_an_order_is_what_was_decided_and_the_next_one_is_told_in_advance() -> None:
    own, rounds = OwnProposals(0.0), [plain_round(step) for step in (1, 2, 3)]
    assert (rounds[0].order, rounds[0].following_order) == (NO_ORDER, None)
    own.order(rounds[0], 8, Decision(3, min_confidence=0.25), 90)
    assert rounds[0].order == rounds[0].following_order == OwnOrder(3, 0.25)
    own.order(rounds[1], 8, Decision(5), 90)
    assert (rounds[1].order, rounds[1].following_order) == (OwnOrder(3, 0.25), OwnOrder(5))
    own.order(rounds[2], 2, Decision(4), 90)
    assert (rounds[2].order, rounds[2].following_order) == (OwnOrder(2), OwnOrder(4)), "cut where the output ends"


def test_the_first_call_has_one_round_and_those_after_it_runs() -> None:
    own, rounds = OwnProposals(0.5), [plain_round(step) for step in (1, 2, 3)]
    own.order(rounds[0], 8, Decision(3), 41)
    assert (rounds[0].order, rounds[0].following_order) == (OwnOrder(3), OwnOrder(3, run_length=5, run_seconds=0.5))
    own.order(rounds[1], 8, Decision(3), 40)
    assert rounds[1].order == rounds[0].following_order, "half of the 40 tokens, four a round"
    assert rounds[1].following_order == OwnOrder(3, run_length=3, run_seconds=0.5), "half of what it leaves at least"
    own.order(rounds[2], 8, Decision(3), 1)
    assert rounds[2].order == OwnOrder(3), "rounds have to come one by one now"


def test_probes_and_the_last_rounds_of_a_trial_come_alone() -> None:
    own = OwnProposals(0.5)
    own.order(plain_round(), 8, Decision(0), 90)
    own.order(probe := plain_round(), 8, Decision(1, is_probe=True), 90)
    assert probe.following_order == OwnOrder(1)
    own.order(plain_round(), 8, Decision(0), 90)
    own.order(trial := plain_round(), 8, Decision(0), 90, plain_rounds=4)
    assert trial.following_order == OwnOrder(0, run_length=4, run_seconds=0.5)
    own.order(lost := plain_round(), 8, Decision(3), 90, plain_rounds=4)
    assert lost.following_order is not None and lost.following_order.run_length > 4


def test_the_first_call_may_order_a_probe_which_is_made_once() -> None:
    own, first = OwnProposals(0.5), plain_round()
    own.order(first, 8, Decision(1, is_probe=True), 90)
    assert first.order == OwnOrder(1)
    assert first.following_order == OwnOrder(0, run_length=16, run_seconds=0.5)


class Told(OutputLength):
    """Wants probes, and notes what it is told."""

    def __init__(self) -> None:
        super().__init__(Group(LengthController()._workload(Drafter.MEDUSA)), fixed=None, is_greedy=True)
        self.may_probe: list[bool] = []
        self.learned: list[str] = []

    def decide(self, longest: int, *, is_ready: bool = True, may_probe: bool = True) -> Decision:
        self.may_probe.append(may_probe)
        return Decision(1, is_probe=True) if may_probe else Decision(0)

    def use(self, decision: Decision) -> None:
        self.learned.append(f"use {decision.length}")

    def add(self, outcome: RoundOutcome) -> None:
        self.learned.append(f"add {outcome.accepted_count}")

    def pay_delay(self, outcome: RoundOutcome) -> None:
        self.learned.append("pay")


def test_a_probe_is_decided_on_once_the_one_before_is_judged() -> None:
    own, length = OwnProposals(0.5), Told()
    own.order(plain_round(), 8, Decision(0), 90)
    orders = []
    for step in range(2, 7):
        own.take(begun := plain_round(step), 8, length, 90, 8)
        orders.append(begun.order.count)
    assert length.may_probe == [True, False, False, True, False]
    assert orders == [0, 1, 0, 0, 1]


def test_a_probe_for_which_there_is_no_room_is_none() -> None:
    own, length, last = OwnProposals(0.5), Told(), plain_round()
    own.order(last, 0, Decision(1, is_probe=True), 90)
    own.learn(last, length, is_first=True)
    assert last.order.count == 0 and length.learned == ["add 0"]


@pytest.mark.parametrize(("seconds", "left"), [(0.0, 90), (0.5, 1)])
def test_a_probe_is_not_paid_twice_where_rounds_come_alone(seconds: float, left: int) -> None:
    own, length = OwnProposals(seconds), Told()
    own.order(plain_round(), 8, Decision(0), left)
    for step in range(2, 6):
        own.take(judged := plain_round(step), 8, length, left, 8)
        own.learn(judged, length, is_first=True)
    assert "pay" not in length.learned


def test_what_is_learned_of_a_run_goes_by_the_order_of_its_rounds() -> None:
    """The first one had its proposal by the order before. The call that orders a probe is one that a run would have
    saved."""
    own, length = OwnProposals(0.5), Told()
    own.order(plain_round(), 8, Decision(0), 90)
    for step, learned in ((2, ["add 0", "use 0", "add 0"]), (3, ["add 0", "pay"]), (4, ["add 0", "use 0", "add 0"])):
        own.take(judged := plain_round(step), 8, length, 90, 8)
        length.learned.clear()
        own.learn(judged, length, is_first=True)
        if step != 3:
            own.learn(judged, length, is_first=False)
        assert length.learned == learned, step


TIMES = CallTimes(started_at=0.0, elapsed=6.0, queue=0.0, compute=6.0)


def ended(own: OwnProposals, verdict: Verdict, longest: int = 8) -> Round:
    """A round with what was offered with a verdict before, whose head had taken half a second for it; it took 9 s."""
    length = OutputLength(Group(LengthController()._workload(Drafter.MEDUSA)), fixed=2, is_greedy=True)
    before = Verdict(path=(), next_token_id=4, times=TIMES, proposal=Proposal(token_ids=[7, 8]), proposing_time=0.5)
    own.keep(before)
    judged = plain_round(2)
    own.take(judged, 8, length, 90, longest)
    judged.pass_count = verdict.pass_count
    judged.end(verdict, 9.0, 0.0)
    return judged


def test_what_a_head_takes_to_propose_is_time_of_the_round_that_judges_it() -> None:
    """In a run as between calls; neither the target's computation nor a round without a proposal has any of it."""
    own = OwnProposals(0.5)
    own.order(plain_round(), 8, Decision(2), 90)
    counts = (RunCounts(2, 1), RunCounts(0, 0))
    verdict = Verdict(path=(0,), next_token_id=4, times=TIMES, run_ids=(1, 2, 3), run_counts=counts, proposing_time=3.0)
    judged = ended(own, verdict)
    rounds = judged.passes()
    assert [one.draft_elapsed for one in rounds] == pytest.approx([0.5, 1.0, 0.0])
    assert [one.draft_compute for one in rounds] == [pytest.approx(0.5), pytest.approx(1.0), None]
    assert [one.elapsed for one in rounds] == pytest.approx([2.5, 3.0, 3.0]), "the last asked for one in vain"
    assert [one.verify_compute for one in rounds] == pytest.approx([1.0] * 3)
    assert sum(one.period for one in rounds) == pytest.approx(9.0)
    acceptance = Acceptance()
    acceptance.add(judged)
    assert (acceptance.draft_time, acceptance.verify_time) == pytest.approx((1.5, 3.0))
    report = RoundReport.of(judged, 0.0)
    assert (report.verify.elapsed, report.verify.compute) == (3.0, 3.0)


def test_of_a_run_that_begins_with_a_proposal_the_other_rounds_are_plain() -> None:
    own = OwnProposals(0.5)
    own.order(plain_round(), 8, Decision(2), 90)
    judged = ended(own, Verdict(path=(0,), next_token_id=4, times=TIMES, run_ids=(1, 2)), longest=0)
    rounds = judged.passes()
    assert [one.kind for one in rounds] == [RoundKind.DRAFT, RoundKind.PLAIN, RoundKind.PLAIN]
    assert [(one.drafted_count, one.accepted_count, one.asked) for one in rounds] == [(2, 1, 2), (0, 0, 0), (0, 0, 0)]
    assert [one.elapsed for one in rounds] == pytest.approx([3.5, 3.0, 3.0])


def test_the_time_of_a_proposal_for_others_stays_where_it_was_waited_for() -> None:
    """It is no time of the target's pass, and of no round of this output."""
    own = OwnProposals(0.5)
    own.order(plain_round(), 0, Decision(0), 90)
    judged = ended(own, Verdict(path=(), next_token_id=4, times=TIMES, proposing_time=2.0), longest=0)
    assert (judged.elapsed, judged.verify_compute, judged.proposing_before) == (9.0, 4.0, 0.0)


def test_after_a_failure_rounds_come_alone() -> None:
    own, failed = OwnProposals(0.5), plain_round()
    own.order(failed, 8, Decision(3), 90)
    own.give_up_runs(failed)
    assert failed.following_order == OwnOrder(3)
    own.order(following := plain_round(), 8, Decision(3), 90)
    assert following.order == following.following_order == OwnOrder(3)


ORDERS = st.builds(OwnOrder, st.integers(0, 8), run_length=st.integers(1, 16), run_seconds=st.just(0.5))


@given(before=st.integers(0, 8), order=ORDERS, left=st.integers(0, 200), depth=st.integers(0, 8))
def test_an_order_that_has_room_is_not_cut(before: int, order: OwnOrder, left: int, depth: int) -> None:
    """Whatever the round before accepts: it was told in advance, and the next call must be the same."""
    depth = min(depth, before)
    if left >= order.room_after(before):
        kept = order.within(left, depth, max(left - 2, 0))
        assert kept == (order if order.run_length > 1 else order.alone)
    cut = order.within(left, depth, 8)
    last = cut.count + 1 if cut.count else 0
    assert cut.run_length == 1 or cut.most_tokens(depth) + last <= left


def test_the_beginning_of_a_tree_is_its_first_levels() -> None:
    tree = Proposal(token_ids=[4, 5, 6, 7], parent_indices=[-1, 0, -1, 1])
    cut = beginning(tree, 2)
    assert (list(cut.token_ids), list(cut.parent_indices)) == ([4, 5, 6], [-1, 0, -1])
    assert list(beginning(Proposal(token_ids=[4, 5, 6]), 2).token_ids) == [4, 5]
