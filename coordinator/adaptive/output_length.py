"""The number of tokens to propose for one output, round by round."""

from typing import NamedTuple

from coordinator.adaptive.acceptance import OutputAcceptance
from coordinator.adaptive.group import Group
from coordinator.adaptive.load import Contribution
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.probe_budget import MOST_JOINING, RECENT
from coordinator.adaptive.probe_price import PROBE_LENGTH, expected_delay, hoped, price, shadow_price
from coordinator.adaptive.round_times import RoundTimes
from coordinator.adaptive.settling import Settling
from coordinator.adaptive.survivals import count_above, survivals
from coordinator.adaptive.verify_budget import ON_MARGIN

FIRST_ROUNDS = 1
"""Plain rounds at a level of load to measure before anything is proposed."""


class Decision(NamedTuple):
    """What to do in a round."""

    length: int
    """Tokens to ask the draft for; 0 for a plain round."""
    opens_draft: bool = False
    """Whether to open the sequence at the draft in the background; proposals begin once it is open."""
    min_confidence: float = 0.0
    """The draft stops once its tokens together have a smaller probability than this."""
    is_probe: bool = False
    """Whether it proposes only to learn whether that pays, which says nothing about the next round."""
    shadow_length: int = 0
    """Tokens to draft beside a plain round, only to compare them with those that follow."""
    price: float = 1.0
    """The chance from which on a token was worth its time."""


PLAIN = Decision(0)


class OutputLength:
    """Decides before each round and learns from its outcome. Made by LengthController.

    It knows only counts and times of finished rounds and of shadow proposals. So no decision depends on a token that
    was drawn and dropped, but where the output is the same whatever is proposed.
    """

    def __init__(
        self,
        group: Group,
        *,
        fixed: int | None,
        is_greedy: bool,
        tree_tokens: int = 0,
        has_shadows: bool = False,
        ends_by_confidence: bool = False,
    ):
        """`has_shadows` says whether it probes by shadow proposals: where a token is accepted if it is the one that
        would be committed without it, and costs hardly anything. `ends_by_confidence` says whether a proposal that is
        shorter than asked for has most likely ended for want of confidence."""
        self._fixed = fixed
        self._has_shadows = has_shadows
        self._tree_tokens = tree_tokens
        self._ends_by_confidence = ends_by_confidence
        self._is_greedy = is_greedy
        self._group = group
        self._workload = group.workload
        self.contribution = Contribution(group.workload.load)
        self._acceptance = OutputAcceptance(group.acceptance)
        self._survivals: list[float] | None = None
        """None after they have changed."""
        self._longest = 0
        """The most tokens that may be proposed now."""
        self._round = 0
        """The latest of the group's rounds in which it decided."""
        self._is_holder = False
        """Whether the draft holds the sequence, or was asked to open it."""
        self._has_opened_early = self._has_proposed = False
        self._is_probe = False
        """Whether this round is a probe: it proposes, or opens the draft, only to learn whether that pays."""
        self._is_due = False
        """Whether it probes in its next round."""
        self._expected = 1.0
        """Expected tokens of this round; they vary far less than the actual ones."""
        self._plain_time = 0.0
        """Time that a plain round would take."""
        self._price = 1.0
        """What a token cost by the decision for this round."""
        self._settling = Settling(group.workload)
        if fixed is None:
            self._workload.budget.enter(self)
            group.enter()

    @property
    def survivals(self) -> list[float]:
        """For each token that may be proposed, the chance that it is accepted with all before it."""
        if self._survivals is None:
            self._survivals = survivals(self._acceptance.rates(), self._longest)
        return self._survivals

    @property
    def plain_rounds(self) -> int | None:
        """The rounds for which proposals are off in all outputs, as they are compared with plain rounds, or lost that
        comparison; None if they are not."""
        if self._fixed is not None or not self._group.trial.is_on:
            return None
        return self._group.trial.rounds_left(max(self._group.count, 1))

    @property
    def is_settling(self) -> bool:
        """Whether this is the first plain round of a comparison, which waits for what others still propose: those after
        it are measured without that."""
        return self._fixed is None and self._group.trial.is_measuring and self._settling.is_beginning

    def opens_early(self, longest: int) -> bool:
        """Whether the draft is to open the sequence before the first round, with at most `longest` proposed tokens."""
        if self._fixed is not None:
            return min(self._fixed, longest) > 0
        if self._group.opens_early:
            self._has_opened_early = self.decide(longest, is_ready=False).opens_draft
        return self._has_opened_early

    def decide(self, longest: int, *, is_ready: bool = True, may_probe: bool = True) -> Decision:
        """Decides on the next round, with at most `longest` proposed tokens.

        `longest` is at least 0. `is_ready` says whether the draft holds the sequence. How many tokens it still has to
        read is not considered: their cost shows in the time of the probe. `may_probe` says whether no probe of this
        output that was decided on before is still to come.
        """
        is_due = self._is_due and self._group.round - self._round <= RECENT
        self._set_probe()
        self._expected = 1.0
        if self._fixed is not None:
            decision = Decision(min(self._fixed, longest))
        else:
            decision = self._choose(longest, is_ready=is_ready, is_due=is_due, may_probe=may_probe)
        self._price = decision.price
        self._count_rows(decision)
        self._settling.begin()
        return decision

    def use(self, decision: Decision) -> None:
        """The round follows an earlier decision instead of the last one."""
        self._set_probe(is_probe=decision.is_probe)
        self._expected, self._price = self.expected(decision.length), decision.price
        self._count_rows(decision)

    def postpone_probe(self) -> None:
        """The probe that was decided on is made in the next round, since this one was promised to be plain."""
        self._set_probe(is_due=True)

    def _count_rows(self, decision: Decision) -> None:
        drafted = max(decision.length, self._tree_tokens) if decision.length else 0
        self.contribution.set_row_count(drafted + 1)

    def expected(self, length: int) -> float:
        """Expected tokens of a round with so many proposed tokens."""
        return 1.0 + sum(survivals(self._acceptance.rates(), length))

    def add(self, outcome: RoundOutcome) -> None:
        """Learns from the outcome of the round."""
        workload, group = self._workload, self._group
        workload.add(outcome, is_probe=self._is_probe)
        if outcome.asked:
            self._acceptance.add(outcome.asked, outcome.accepted_count)
        elif not outcome.is_passed_over:
            self._acceptance.add_plain()
        self._survivals = None
        self._settling.end(was_asked=outcome.asked > 0)
        self.contribution.add(outcome.accepted_count + 1)
        if self._fixed is not None:
            return
        if self._ends_by_confidence and outcome.drafted_count:
            group.confidence.add(outcome.asked, outcome.drafted_count, outcome.accepted_count, self._price)
        expected = self._expected if outcome.asked else 1.0
        if not self._is_probe or group.trial.is_on:
            was_asked, is_settled = outcome.asked > 0, self._settling.is_over
            group.trial.add(expected, outcome.elapsed, group.count, was_asked=was_asked, is_settled=is_settled)
        if self._is_probe and self._plain_time:
            self._pay(outcome, expected)
            self._set_probe()
        elif not outcome.asked and not outcome.is_passed_over:
            group.probes.earn(group.count)

    def add_guess(self, asked: int, drafted: int) -> None:
        """A shadow proposal was made: of `asked` tokens there were `drafted`."""
        self._workload.add_guess(asked, drafted)

    def add_shadow(self, asked: int, accepted: int) -> None:
        """Learns from a shadow proposal: of the `asked` tokens, the first `accepted` ones came to be committed. It
        succeeded if as many proposed tokens would have been worth their time."""
        workload, count = self._workload, self._workload.load.output_count
        self._acceptance.add(asked, accepted)
        self._survivals = None
        times = workload.times()
        gain = (accepted + 1.0) * times.plain(count) / times.of_all(count, accepted) if accepted else 0.0
        self._group.probes.judge(succeeded=gain > 1.0)
        self._group.wake()

    def plain_time(self, outcome: RoundOutcome) -> float | None:
        """Seconds that this round would have taken if no output had proposed anything; None while unknown."""
        workload = self._workload
        if not outcome.asked and workload.is_plain:
            return outcome.elapsed
        if not workload.plain.count:
            return None
        return workload.times().plain(workload.load.output_count)

    def leave(self) -> None:
        """The output is over, however it ended."""
        self.contribution.leave()
        if self._fixed is None:
            self._workload.budget.leave(self)
            self._hold(is_holder=False)
            self._set_probe()
            if self._has_opened_early or self._has_proposed:
                self._group.opens_early = self._has_proposed
            self._group.leave()

    def _choose(self, longest: int, *, is_ready: bool, is_due: bool, may_probe: bool) -> Decision:
        """The number of tokens for this round; none may pay, and it may probe. A probe that is due is made."""
        workload, group = self._workload, self._group
        begins_round = self._round == group.round
        group.round += begins_round
        self._round = group.round
        is_idle = group.is_idle and not is_due
        if longest <= 0 or is_idle or group.trial.is_on or workload.plain.count < FIRST_ROUNDS:
            return PLAIN
        self._hold(is_holder=is_ready or self._is_holder)
        if longest != self._longest:
            self._longest, self._survivals = longest, None
        plan = workload.plan()
        length = min(count_above(self.survivals, plan.least), plan.longest)
        if not length:
            if not may_probe:
                return PLAIN
            if begins_round and not self._may_probe() and not plan.longest:
                group.idle()
            is_joining = is_due or (
                group.probes.has_begun(group.round) and group.probes.join(is_holder=self._is_holder)
            )
            return self._probe(is_ready=is_ready) if is_joining else PLAIN
        if not is_ready:
            return self._opening()
        self._has_proposed = True
        self._expected = 1.0 + sum(self.survivals[:length])
        min_confidence = group.confidence.limit(plan.price) if self._is_greedy else 0.0
        return Decision(length, min_confidence=min_confidence, price=plan.price)

    def _may_probe(self) -> bool:
        """Whether a probe may change anything, and the budget pays for what it costs all outputs together; it is then
        begun."""
        group, load, times = self._group, self._workload.load, self._workload.times()
        probes, joining = group.probes, self._joining
        if self._has_shadows:
            if probes.has_begun_lately(group.round):
                return False
            cost = shadow_price(times, load, joining)
        else:
            if probes.has_some_out(group.round) and (probes.due_count or load.promised_count):
                return False  # it would be on the same credit; those who wait for the probes cannot come to this
            cost = self._cost_of_probes(joining)
        might_pay = self._might_pay(times)
        if might_pay and probes.affords(cost):
            probes.begin(group.round, joining)
            return True
        is_hopeless = not might_pay or probes.is_beyond(cost, group.count)
        return is_hopeless and not self._has_shadows and self._may_doubt()

    def _may_doubt(self) -> bool:
        """Whether one output probes though that seems to be too dear, as the draft may have been slow only while it was
        measured; it is then begun. Nothing else would show that it no longer is."""
        group, workload = self._group, self._workload
        if group.probes.out_count or not self._might_pay(workload.times_as_published()):
            return False
        if not group.probes.has_saved(self._cost_of_probes(1)):
            return False
        group.probes.begin(group.round, 1, workload.times().draft(self._probe_length))
        return True

    def _cost_of_probes(self, joining: int) -> float:
        """Tokens that they are expected to cost all outputs."""
        load, times = self._workload.load, self._workload.times()
        length = self._probe_length
        rows, late = joining * max(self._tree_tokens, length), expected_delay(times, load, joining, length)
        return price(times, load, joining, length, late=late, rows=rows) - joining * sum(self.survivals[:length])

    def _might_pay(self, times: RoundTimes) -> bool:
        return hoped(times, self._workload.load.output_count, self._longest)[1] >= ON_MARGIN

    @property
    def _probe_length(self) -> int:
        """Tokens of a probe: no more than may pay; one beside outputs that do not probe, whose passes rows lengthen."""
        times, count = self._workload.times(), self._workload.load.output_count
        return min(max(hoped(times, count, self._longest)[0], 1), PROBE_LENGTH) if count <= MOST_JOINING else 1

    @property
    def _joining(self) -> int:
        """Outputs that probe in the same round."""
        return self._group.count if self._has_shadows else min(self._group.count, MOST_JOINING)

    def _probe(self, *, is_ready: bool) -> Decision:
        """One token, or a shadow proposal; or the draft opens the sequence for it."""
        workload = self._workload
        if self._has_shadows and is_ready:
            return self._shadow()
        self._set_probe(is_probe=True)
        self._plain_time = workload.times().plain(workload.load.output_count)
        if not is_ready:
            return self._opening()
        self._expected = 1.0 + sum(self.survivals[: self._probe_length])
        return Decision(self._probe_length, is_probe=True)

    def _shadow(self) -> Decision:
        """A plain round beside a shadow proposal. Its share is paid at once, by what it is expected to cost."""
        group, workload = self._group, self._workload
        group.probes.spend(shadow_price(workload.times(), workload.load, 1), group.count)
        return Decision(0, shadow_length=min(PROBE_LENGTH, self._longest))

    def _pay(self, outcome: RoundOutcome, expected: float) -> None:
        """Pays for its share of the probes that were made together."""
        group, workload, probes = self._group, self._workload, self._group.probes
        joined, late = min(group.count, probes.begun_count), outcome.elapsed / self._plain_time - 1.0
        rows, times, load = joined * outcome.drafted_count, workload.times(), workload.load
        cost = price(times, load, joined, max(outcome.asked, 1), late=late, rows=rows) / joined
        probes.spend(cost - (expected - 1.0), group.count)
        if outcome.drafted_count:
            probes.settle(outcome.draft_elapsed)
        if outcome.asked:
            probes.judge(succeeded=outcome.accepted_count > 0)
            group.wake()

    def pay_delay(self, outcome: RoundOutcome) -> None:
        """Pays for a plain round that came in a call of its own, where it would have been one of a run, because a head
        of the target had to be asked for a probe in it. No other output waits for that."""
        if self._plain_time and not outcome.asked:
            self._group.probes.spend(outcome.elapsed / self._plain_time - 1.0, self._group.count)

    def _set_probe(self, *, is_probe: bool = False, is_due: bool = False) -> None:
        probes = self._group.probes
        probes.out_count += (is_probe or is_due) - (self._is_probe or self._is_due)
        probes.due_count += is_due - self._is_due
        self._is_probe, self._is_due = is_probe, is_due

    def _opening(self) -> Decision:
        self._hold(is_holder=True)
        return Decision(0, opens_draft=True)

    def _hold(self, *, is_holder: bool) -> None:
        self._group.probes.holder_count += is_holder - self._is_holder
        self._is_holder = is_holder
