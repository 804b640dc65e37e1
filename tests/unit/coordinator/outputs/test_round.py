"""A round is an object: two rounds of one output may be under way, and end in their order."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.adaptive import RoundOutcome
from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.metrics import RoundKind
from coordinator.outputs.proposals import Proposals
from coordinator.outputs.round import LONGEST_PAUSE, Round
from coordinator.outputs.round_report import RoundReport
from coordinator.peers import CallTimes, DraftSession, Proposed, TargetSession, Verdict
from specpair.errors import InvalidDistributionError
from specpair.options import Rule
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.fake_language import VOCAB_SIZE, continuation
from tests.unit.coordinator.pair_bench import CONFIG, PROMPT, Bench, bench, request, until

COUNT = 4
CALL = CallTimes(started_at=0.0, elapsed=0.004, queue=0.0005, compute=0.003, rollback=0.0002)
VERDICT = Verdict(path=(0,), next_token_id=1, times=CALL._replace(elapsed=0.02, compute=0.018, rollback=0.001))


class Ahead:
    """An output whose next round begins while this one is judged: what is accepted is guessed right."""

    def __init__(self, fakes: Bench) -> None:
        asked, draft = request(count=COUNT), fakes.pair.draft
        assert draft is not None
        self.pair = fakes.pair
        options = asked.sequence_options(VOCAB_SIZE)
        times = (CONFIG.draft_timeout, CONFIG.draft_cooldown)
        self.target = TargetSession(fakes.pair.target, "ahead", len(PROMPT), options, CONFIG.target_timeout)
        self.draft = DraftSession(draft, "ahead", len(PROMPT), options, *times)
        self.proposals = Proposals(asked, fakes.pair, self.draft)
        self.history = list(PROMPT)

    async def begin(self) -> None:
        """The first token."""
        self.proposals.begin(self.history, COUNT)
        await self.target.open(self.history)
        self.commit(Round(step=0, rule=Rule.BLOCK), await self.target.verify(0, self.history, None))
        self.proposals.start_clock()

    async def two_rounds(self) -> tuple[Round, Round, Verdict]:
        """Two rounds that are under way, and the verdict of the first."""
        first = await self.proposals.next_round(1, self.history, COUNT)
        judging = asyncio.create_task(self.judge(first))
        # The draft is wrong at every fifth token, and the history has 4: one is accepted, and then corrected.
        second = await self.proposals.next_round(2, [*PROMPT, *continuation(PROMPT, 3)], COUNT)
        assert not judging.done() and first.verdict is None and second.verdict is None
        return first, second, await judging

    async def judge(self, begun: Round) -> Verdict:
        assert begun.proposed is not None
        return await self.target.verify(begun.step, self.history, begun.proposed.proposal)

    def commit(self, judged: Round, verdict: Verdict) -> None:
        self.history += [*(judged.token_ids[index] for index in verdict.path), verdict.next_token_id]

    async def close(self) -> None:
        self.proposals.leave(self.history)
        await asyncio.gather(self.target.close(), self.draft.close())


async def test_two_rounds_of_an_output_are_under_way_at_once() -> None:
    async with bench() as b:
        output = Ahead(b)
        await output.begin()
        b.target.delay = 0.1
        first, second, verdict = await output.two_rounds()
        output.proposals.end(first, verdict)
        output.commit(first, verdict)
        verdict = await output.judge(second)
        output.proposals.end(second, verdict)
        output.commit(second, verdict)
        assert output.history == [*PROMPT, *continuation(PROMPT, 8)]

        acceptance, value = output.proposals.acceptance, b.pair.metrics.registry.get_sample_value
        assert (acceptance.round_count, acceptance.draft_token_count, acceptance.accepted_token_count) == (2, 8, 5)
        assert acceptance.accepted_per_position == [2, 1, 1, 1]
        await until(lambda: value("specpair_spec_decode_rounds_total", {"kind": "draft"}) == 2)
        labels = {"drafter": "unknown", "rule": "block"}
        assert value("specpair_spec_decode_num_draft_tokens_total", labels) == 8
        assert value("specpair_spec_decode_num_accepted_tokens_total", labels) == 5
        reports = [RoundReport.of(judged, 0.0) for judged in (first, second)]
        assert [(report.step, len(report.token_ids), report.path) for report in reports] == [
            (1, 4, (0,)),
            (2, 4, (0, 1, 2, 3)),
        ]
        assert list(reports[1].token_ids) == continuation(PROMPT, 7)[3:]
        assert second.began_at < first.ended_at
        assert second.elapsed == pytest.approx(second.ended_at - first.ended_at), "while both were, it was the first's"
        await output.close()
        await b.check_closed()


async def test_a_refused_proposal_leaves_the_round_after_it_as_it_is() -> None:
    async with bench() as b:
        output = Ahead(b)
        await output.begin()
        b.target.delay = 0.1
        first, second, verdict = await output.two_rounds()
        output.proposals.refuse(first, InvalidDistributionError("proposal", "is no good"))
        output.proposals.end(first, replace(verdict, path=()))
        assert (first.kind, first.drafted_count, first.is_usual) == (RoundKind.FALLBACK, 0, False)
        output.proposals.end(second, replace(verdict, path=(0, 1)))
        assert (second.kind, second.drafted_count, second.is_usual) == (RoundKind.DRAFT, 4, True)
        acceptance = output.proposals.acceptance
        assert (acceptance.fallback_count, acceptance.draft_token_count, acceptance.accepted_token_count) == (1, 4, 2)
        await output.close()


def ended(*, pause: float = 0.0, is_refused: bool = False, is_usual: bool = True) -> Round:
    """A round of 30 ms after such a pause, with four tokens of which one is accepted."""
    answer = Proposed(proposal=Proposal(token_ids=[1, 2, 3, 4]), times=CALL, is_usual=is_usual)
    made = Round(step=3, rule=Rule.TOKEN, asked_count=COUNT)
    made.take(answer)
    if is_refused:
        made.refuse()
    made.began_at = 10.0 + pause
    made.end(replace(VERDICT, path=()) if is_refused else VERDICT, 10.03 + pause, 10.0)
    return made


def test_times_of_a_round() -> None:
    made = ended(pause=0.5)
    assert made.period == pytest.approx(0.53)
    assert made.elapsed == pytest.approx(0.03 + LONGEST_PAUSE), "a longer pause is its client's"
    assert (made.draft_compute, made.verify_compute) == (0.003, 0.018)
    assert made.rollback_time == pytest.approx(0.0012)
    assert made.network_time == pytest.approx(0.001 + 0.002 - 0.0012)


def test_a_proposal_that_was_prepared_costs_the_round_only_what_it_waited() -> None:
    made = Round(step=3, rule=Rule.TOKEN, asked_count=COUNT)
    prepared = Proposed(proposal=Proposal(token_ids=[1, 2]), times=CALL, ahead=AheadOutcome.LATE, waited=0.001)
    made.take(prepared)
    made.end(VERDICT, 0.03, 0.0)
    assert (made.draft_elapsed, made.draft_compute) == pytest.approx((0.001, 0.001))
    assert made.hidden_time == pytest.approx(0.002)
    made.take(replace(prepared, ahead=AheadOutcome.HIT, waited=0.0))
    made.end(VERDICT, 0.03, 0.0)
    assert (made.draft_elapsed, made.draft_compute, made.hidden_time) == pytest.approx((0.0, 0.0, 0.003))
    assert ended().hidden_time == 0.0 and ended().ahead is None


def test_those_who_decide_learn_of_counts_and_times_alone() -> None:
    outcome: RoundOutcome = ended()
    assert (outcome.asked, outcome.drafted_count, outcome.accepted_count, outcome.is_usual) == (4, 4, 1, True)
    assert outcome.elapsed == pytest.approx(0.03)
    assert (outcome.draft_elapsed, outcome.draft_compute) == pytest.approx((0.004, 0.003))
    assert not ended(is_usual=False).is_usual


def test_a_refused_proposal_counts_as_none() -> None:
    made = ended(is_refused=True)
    assert (made.kind, made.drafted_count, made.draft_compute) == (RoundKind.FALLBACK, 0, None)
    assert (made.asked, made.drafted_count, made.draft_elapsed, made.is_usual) == (0, 0, 0.0, False)
    assert RoundReport.of(made, 0.0).draft is None


def test_each_pass_of_a_run_has_its_share_of_the_times() -> None:
    run = Round(step=3, rule=Rule.BLOCK, began_at=1.0)
    run.pass_count = 4
    run.end(replace(VERDICT, path=(), run_ids=(4, 5, 6)), 1.08, 1.0)
    passes = run.passes()
    assert len(passes) == 4
    for name in ("elapsed", "period", "verify_compute", "network_time", "rollback_time"):
        total = sum(getattr(one, name) for one in passes)
        assert total == pytest.approx(getattr(run, name)) and total > 0
    single = Round(step=3, rule=Rule.BLOCK)
    single.end(replace(VERDICT, path=()), 1.02, 1.0)
    assert single.passes() == [single]
