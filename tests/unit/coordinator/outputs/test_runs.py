"""Where nothing is proposed the target gives several tokens in one answer: the same tokens, counted as before."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.adaptive import Decision, OutputLength, RoundOutcome
from coordinator.metrics import RoundKind
from coordinator.outputs.origins import origins_of
from coordinator.outputs.output_part import Origin, OutputPart
from coordinator.outputs.round import Round
from coordinator.peers import NO_ORDER, OwnOrder, Proposed, RunCounts, Verdict, no_time
from coordinator.peers.answers import run_counts
from coordinator.peers.own_order import LONGEST_RUN, run_within
from specpair.errors import SpecpairError
from specpair.options import Rule, SamplingOptions, StructuredOutput, StructureKind
from specpair.v1.proposal_pb2 import Proposal
from specpair.v1.target_service_pb2 import VerifyProposalResponse
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, CONFIG, PROMPT, bench, collect

GATHERING = replace(CONFIG, stream_interval=1.0)
"""The fakes end no run for its time, unless they are told to."""


async def first(parts: AsyncIterator[OutputPart], count: int) -> AsyncIterator[OutputPart]:
    for _ in range(count):
        yield await anext(parts)


@given(seconds=st.floats(0.0, 1.0), left=st.integers(0, 99))
def test_a_run_leaves_room_for_the_next(seconds: float, left: int) -> None:
    order = run_within(seconds, left)
    if not seconds or left < 3:
        assert order == NO_ORDER
    else:
        assert 2 <= order.run_length <= LONGEST_RUN and order.run_seconds == seconds
        assert run_within(seconds, left - order.run_length).run_length <= left - order.run_length


@pytest.mark.parametrize("with_draft", [False, True])
async def test_an_output_without_proposals_comes_in_runs(with_draft: bool) -> None:
    async with bench(with_draft=with_draft, config=GATHERING, longest_run=8) as b:
        generation = await b.run(max_tokens=80, count=0)
        assert b.target.runs[:9] == [1, *[8] * 8] and sum(b.target.runs) == 80
        assert len(b.target.runs) < 15
        assert generation.acceptance.round_count == 79
        assert b.target.gone_on_count == len(b.target.runs) - 1, "each call was promised with the one before it"
        assert len(b.target.opened) == 1, "and was the one that was promised"
        assert not b.target.unaware_count
        assert b.pair.metrics.registry.get_sample_value("specpair_spec_decode_rounds_total", {"kind": "plain"}) == 79


@pytest.mark.parametrize(
    ("interval", "longest_run", "changes"),
    [
        (0.0, 8, {}),
        (1.0, 0, {}),
        (1.0, 8, {"include_rounds": True}),
        (1.0, 8, {"structured_output": StructuredOutput(kind=StructureKind.JSON_OBJECT)}),
    ],
)
async def test_elsewhere_each_token_is_asked_for(interval: float, longest_run: int, changes: dict[str, Any]) -> None:
    async with bench(config=replace(CONFIG, stream_interval=interval), longest_run=longest_run) as b:
        await b.run(max_tokens=20, count=0, **changes)
        assert b.target.runs == [1] * 20


async def test_no_run_begins_while_other_outputs_are_to_be_forked() -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        b.target.fork_delay = 0.01
        choices = b.choices(max_tokens=24, count=0, n=3, best_of=3)
        async for _ in choices.parts():
            pass
        assert b.target.runs[:2] == [1, 1], "the forks wait for the first token, and the second call comes before them"
        assert max(b.target.runs) == 8
        await b.check_closed()


@pytest.mark.parametrize("most", [1, 3, 5])
async def test_runs_go_on_where_their_time_ended_them(most: int) -> None:
    async with bench(config=GATHERING, longest_run=16) as b:
        b.target.most_in_time = most
        generation = await b.run(max_tokens=80, count=0)
        assert generation.acceptance.round_count == 79
        assert len(b.target.runs) >= 80 / most
        assert b.target.gone_on_count == len(b.target.runs) - 1 and len(b.target.opened) == 1


async def test_targets_with_and_without_runs_serve_side_by_side() -> None:
    """An output at one of them is not disturbed by the other."""
    async with bench(config=GATHERING, longest_run=8, target_count=2) as b:
        b.targets[1].model = replace(b.targets[1].model, longest_run=0)
        next(link for link in b.pair.target.links.values() if link.peer is b.targets[1]).info = b.targets[1].model
        for _ in range(4):
            await b.run(max_tokens=40, count=0)
        assert sum(len(target.opened) for target in b.targets) == 4
        assert max(b.targets[0].runs, default=8) == 8 and max(b.targets[1].runs, default=1) == 1


async def test_a_run_that_fails_ends_runs_for_the_output() -> None:
    """Its tokens come one by one, as many as there are before the pass that fails."""
    async with bench(config=GATHERING, longest_run=8) as b:
        b.target.runs_fail_from = 20
        generation = await b.run(max_tokens=60, count=0)
        assert generation.acceptance.round_count == 59
        assert max(b.target.runs) == 8 and set(b.target.runs[-20:]) == {1}
        assert 1 <= b.target.failed_run_count <= 2, "begun as promised, and asked for"


async def test_tokens_after_a_stop_in_a_run_are_not_counted() -> None:
    text = continuation(PROMPT, 40)
    async with bench(config=GATHERING, longest_run=8) as b:
        for count in range(1, 20):
            generation = b.generation(max_tokens=40, count=0, sampling=SamplingOptions(stop_token_ids=(text[count],)))
            await collect(generation)
            assert generation.acceptance.round_count == len(generation.output.token_ids) - 1
        await b.check_closed()


async def test_tokens_before_a_stop_in_a_run_share_all_of_its_time() -> None:
    """Their client waits for the whole run."""
    text = continuation(PROMPT, 12)
    assert text[-1] not in text[:-1]
    async with bench(config=GATHERING, longest_run=8) as b:
        b.target.delay = 0.1
        generation = b.generation(max_tokens=40, count=0, sampling=SamplingOptions(stop_token_ids=(text[-1],)))
        await collect(generation)
        assert b.target.runs[:3] == [1, 8, 8] and generation.output.token_ids == text
        value = b.pair.metrics.registry.get_sample_value
        assert value("specpair_inter_token_latency_seconds_count") == 11
        spent = value("specpair_inter_token_latency_seconds_sum")
        assert spent is not None and spent > 1.9 * b.target.delay


@pytest.mark.parametrize(("opens", "rounds", "longest"), [(True, None, 1), (False, None, 8), (False, 5, 5)])
async def test_runs_are_short_where_proposals_may_follow_soon(
    monkeypatch: pytest.MonkeyPatch, opens: bool, rounds: int | None, longest: int
) -> None:
    """While the draft is being opened, and at the end of a trial of plain rounds."""
    decided = Decision(0, opens_draft=opens)
    monkeypatch.setattr(OutputLength, "_choose", lambda *args, **more: decided)
    monkeypatch.setattr(OutputLength, "plain_rounds", rounds)
    async with bench(config=GATHERING, longest_run=8) as b:
        await b.run(max_tokens=60, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert max(b.target.runs) == longest


@pytest.mark.parametrize("settles", [False, True])
async def test_a_comparison_begins_with_a_single_round(monkeypatch: pytest.MonkeyPatch, settles: bool) -> None:
    """It waits for what others still propose, and the run after it, which is measured, does not."""
    monkeypatch.setattr(OutputLength, "_choose", lambda *args, **more: Decision(0))
    monkeypatch.setattr(OutputLength, "is_settling", settles)
    async with bench(config=GATHERING, longest_run=8) as b:
        await b.run(max_tokens=60, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert b.target.runs[:3] == ([1, 1, 8] if settles else [1, 8, 8])


@pytest.mark.parametrize("faults", [{3: AWAY}, {2: AWAY, 3: AWAY}])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_run_is_given_once(faults: dict[int, Any], when: str) -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        setattr(b.target.faults, when, faults)
        generation = await b.run(max_tokens=60, count=0)
        assert generation.acceptance.round_count == 59


async def test_a_run_is_given_by_a_target_that_knows_none() -> None:
    """Token by token: it takes over in the middle."""
    async with bench(config=GATHERING, longest_run=8, target_count=2) as b:
        parts = b.generation(max_tokens=60, count=0).parts()
        tokens = [token async for part in first(parts, 6) for token in part.token_ids]
        used, other = sorted(b.targets, key=lambda target: -len(target.runs))
        assert max(used.runs) == 8 and not other.runs
        used.faults.before = dict.fromkeys(range(1000), AWAY)
        other.model = replace(other.model, longest_run=0)
        next(link for link in b.pair.target.links.values() if link.peer is other).info = other.model
        tokens += [token async for part in parts for token in part.token_ids]
        assert tokens == continuation(PROMPT, 60)
        assert set(other.runs) == {1}


async def test_tokens_of_a_run_have_their_logprobs_and_origins() -> None:
    async with bench(config=GATHERING, longest_run=8) as b:
        parts = await collect(b.generation(max_tokens=40, count=0, logprobs=1))
        assert {len(part.token_ids) for part in parts} >= {1, 8}
        for part in parts:
            assert part.origins == [Origin.TARGET] * len(part.token_ids)
            assert len(part.logprobs) in {0, len(part.token_ids)}
        await b.check_closed()


async def test_an_output_that_stops_in_a_run_has_no_token_after_it() -> None:
    text = continuation(PROMPT, 40)
    stop = next(token for place, token in enumerate(text) if place >= 12 and token not in text[:place])
    async with bench(config=GATHERING, longest_run=8) as b:
        generation = b.generation(max_tokens=40, count=0, sampling=SamplingOptions(stop_token_ids=(stop,)))
        await collect(generation)
        assert generation.output.token_ids == text[: text.index(stop) + 1]
        assert max(b.target.runs) == 8
        await b.check_closed()


async def test_single_tokens_while_the_draft_is_opened_say_nothing_of_plain_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take longer than those of runs, by which plain rounds are compared with proposals."""
    usual, add = list[bool](), OutputLength.add

    def note(lengths: OutputLength, outcome: RoundOutcome) -> None:
        usual.append(outcome.is_usual)
        add(lengths, outcome)

    monkeypatch.setattr(OutputLength, "add", note)
    monkeypatch.setattr(OutputLength, "_choose", lambda *args, **more: Decision(0, opens_draft=True))
    async with bench(config=GATHERING, longest_run=8) as b:
        await b.run(max_tokens=20, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert set(usual) == {False}
    async with bench(config=CONFIG, longest_run=8) as b:
        usual.clear()
        await b.run(max_tokens=20, count=0)
        assert set(usual) == {True}


async def test_a_promised_run_is_kept_where_proposals_begin_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = list[bool]()

    def choose(self: OutputLength, longest: int, *, is_ready: bool, is_due: bool, may_probe: bool) -> Decision:
        rounds.append(is_ready)
        return Decision(min(3, longest)) if is_ready and len(rounds) > 6 else Decision(0, opens_draft=not is_ready)

    monkeypatch.setattr(OutputLength, "_choose", choose)
    async with bench(config=GATHERING, longest_run=4) as b:
        await b.run(max_tokens=60, num_speculative_tokens=None, rule=Rule.COUPLED)
        assert max(b.target.runs) == 4 and b.draft.counts
        assert b.target.gone_on_count == len(b.target.promises) - b.target.promises.count(None)
        assert len(b.target.opened) == 1
        assert any(promise is not None and promise.run_length == 4 for promise in b.target.promises)


def test_more_rounds_than_were_asked_for_are_an_error() -> None:
    answer = VerifyProposalResponse(next_token_id=1, run_token_ids=[2, 3])
    assert run_counts(answer, OwnOrder(run_length=3)) == ()
    with pytest.raises(SpecpairError, match="gave a run of 3; 2 were asked for"):
        run_counts(answer, OwnOrder(run_length=2))


@pytest.mark.parametrize(
    ("proposed", "accepted", "problem"),
    [
        ([2, 2], [1], "unequal numbers"),
        ([2, 1], [1, 2], "a run with"),
        ([4, 2], [1, 0], "3 proposed tokens were asked for"),
        ([2, 2], [1, 1], "gave 3 tokens for a run with"),
        ([2, 2, 2], [0, 0, 0], "gave a run of 4; 3 were asked for"),
    ],
)
def test_counts_of_a_run_have_to_fit(proposed: list[int], accepted: list[int], problem: str) -> None:
    order = OwnOrder(3, run_length=3)
    fitting = VerifyProposalResponse(run_token_ids=[2, 3, 4], run_proposed_counts=[2, 2], run_accepted_counts=[1, 0])
    assert run_counts(fitting, order) == (RunCounts(2, 1), RunCounts(2, 0))
    answer = VerifyProposalResponse(run_token_ids=[2, 3, 4], run_proposed_counts=proposed, run_accepted_counts=accepted)
    with pytest.raises(SpecpairError, match=problem):
        run_counts(answer, order)


@pytest.mark.parametrize(
    ("trees", "leaves", "problem"),
    [
        ([5], [True], "unequal numbers"),
        ([5, 0], [True], "unequal numbers"),
        ([1, 0], [True, False], "a run with"),
        ([65, 0], [True, False], "a run with"),
        ([5, 0], [True, True], "a run with"),
        ([5, 1], [True, False], "a run with"),
    ],
)
def test_so_have_those_of_trees(trees: list[int], leaves: list[bool], problem: str) -> None:
    order = OwnOrder(3, run_length=3)
    answer = VerifyProposalResponse(run_token_ids=[2, 3, 4, 5], run_proposed_counts=[2, 1], run_accepted_counts=[1, 1])
    fitting = VerifyProposalResponse(run_tree_token_counts=[64, 0], run_ended_at_leaf=[True, False])
    fitting.MergeFrom(answer)
    first, second = run_counts(fitting, order)
    assert (first, second) == (RunCounts(2, 1, 64, True), RunCounts(1, 1))
    assert [(one.proposed_count, one.is_whole) for one in (first, second)] == [(64, True), (1, True)]
    answer.run_tree_token_counts.extend(trees)
    answer.run_ended_at_leaf.extend(leaves)
    with pytest.raises(SpecpairError, match=problem):
        run_counts(answer, order)


def test_rounds_of_a_head_in_a_run_are_counted_each() -> None:
    """With its own proposal, its share of the time, and the origins of its tokens."""
    counts = (RunCounts(3, 3), RunCounts(0, 0), RunCounts(2, 1))
    verdict = Verdict(path=(), next_token_id=4, times=no_time(), run_ids=tuple(range(7)), run_counts=counts)
    judged = Round(step=1, rule=Rule.BLOCK, order=OwnOrder(3, run_length=4), drafted_count=2, depth=2)
    judged.pass_count = verdict.passes_for(verdict.committed_count)
    judged.end(verdict, 8.0, 0.0)
    rounds = judged.passes()
    assert [(one.drafted_count, one.accepted_count, one.depth) for one in rounds] == [
        (2, 0, 2),
        (3, 3, 3),
        (0, 0, 0),
        (2, 1, 2),
    ]
    assert [one.asked for one in rounds[1:]] == [3, 0, 3] and {one.period for one in rounds} == {2.0}
    accepted, target = Origin.ACCEPTED, Origin.TARGET
    assert origins_of(judged) == [
        *(Origin.CORRECTION, accepted, accepted, accepted, Origin.BONUS, target, accepted, Origin.CORRECTION),
    ]
    assert [verdict.passes_for(count) for count in range(1, 9)] == [1, 2, 2, 2, 2, 3, 4, 4]


@pytest.mark.parametrize("counts", [(), (RunCounts(3, 1), RunCounts(0, 0))])
def test_of_a_run_one_round_alone_falls_back(counts: tuple[RunCounts, ...]) -> None:
    """The one whose proposal was refused, as after a restart of the target, which had its distributions."""
    verdict = Verdict(path=(), next_token_id=4, times=no_time(), run_ids=(5, 6, 7)[: 3 if counts else 2])
    verdict = replace(verdict, run_counts=counts)
    judged = Round(step=1, rule=Rule.BLOCK, order=OwnOrder(3, run_length=3))
    judged.take(Proposed(proposal=Proposal(token_ids=[1, 2]), times=no_time()))
    judged.refuse()
    judged.pass_count = verdict.pass_count
    judged.end(verdict, 3.0, 0.0)
    rounds = judged.passes()
    later = RoundKind.DRAFT if counts else RoundKind.PLAIN
    assert [one.kind for one in rounds] == [RoundKind.FALLBACK, later, RoundKind.PLAIN]
    assert [one.is_usual for one in rounds] == [False, True, True]
