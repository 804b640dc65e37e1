"""Prepared proposals without their distributions: the target begins with them while the draft is asked for those."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.adaptive.withholding import Asking, Withholding
from coordinator.outputs.generation import Generation
from coordinator.outputs.round import Round
from coordinator.peers import CallTimes
from coordinator.peers.draft_session import DraftSession
from specpair.options import Drafter, Rule, SamplingOptions, WorkAhead
from specpair.v1.draft_service_pb2 import AheadBlock
from tests.unit.coordinator import fake_peers
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import AWAY, PROMPT, Bench, bench

ON: dict[str, Any] = {"work_ahead": WorkAhead.ON}


@pytest.fixture(autouse=True)
def _a_pass_takes_longer_than_the_way_to_the_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_peers, "VERIFY_TIMES", CallTimes(started_at=0.0, elapsed=1.0, queue=0.0, compute=1.0))


def hits(generation: Generation) -> int:
    return generation.acceptance.ahead_counts[AheadOutcome.HIT]


def withheld(b: Bench) -> set[bool]:
    """What the draft was told of the distributions of what it prepares, once the first rounds have shown the times."""
    return {asked.withholds for asked in b.draft.preparations[3:] if asked is not None}


async def test_the_draft_is_asked_for_the_distributions_while_the_target_works() -> None:
    async with bench(withholds=True) as b:
        b.target.delay, b.draft.delay = 0.01, 0.004
        generation = await b.run(40, 4, 0.0, **ON)
        assert hits(generation) > 5 and b.target.met_count == hits(generation)
        assert withheld(b) == {True} and b.target.bare_count > 10
        assert not any(b.draft.has_proposal[4:]), "each answer has the distributions"
        assert not generation.acceptance.fallback_count


async def test_the_output_has_the_same_rounds_as_with_whole_proposals() -> None:
    taken = []
    for withholds in (False, True):
        async with bench(withholds=withholds) as b:
            b.target.delay = 0.003
            b.draft.prepares = lambda step, accepted_count: step % 3 > 0
            acceptance = (await b.run(60, 4, 0.0, **ON)).acceptance
            taken.append((acceptance.drafted_per_position, acceptance.accepted_per_position))
    assert taken[0] == taken[1]


async def test_where_no_distributions_are_sent_none_are_withheld() -> None:
    for change in ({"rule": Rule.COUPLED}, {"sampling": SamplingOptions(temperature=0.0)}):
        async with bench(withholds=True) as b:
            await b.run(40, 4, 0.0, **ON, **change)
            assert withheld(b) == {False}


async def test_tokens_alone_do_not_replace_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal that is whole is used even if its draft is lost."""
    said: list[bool] = []
    has_prepared = DraftSession.has_prepared

    def noting(session: DraftSession, *place: Any) -> bool:
        said.append(has_prepared(session, *place))
        return said[-1]

    monkeypatch.setattr(DraftSession, "has_prepared", noting)
    for withholds in (True, False):
        async with bench(withholds=withholds) as b:
            b.target.delay = 0.005
            said.clear()
            assert hits(await b.run(40, 4, 0.0, **ON)) > 5
            assert any(said) is not withholds


async def test_none_are_withheld_where_the_way_to_the_draft_takes_longer_than_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The round would wait for them."""
    monkeypatch.setattr(fake_peers, "DRAFT_TIMES", CallTimes(started_at=0.0, elapsed=3.0, queue=0.0, compute=1.0))
    async with bench(withholds=True) as b:
        b.target.delay = 0.005
        generation = await b.run(40, 4, 0.0, **ON)
        assert withheld(b) == {False}, "it is found in the first rounds"
        assert hits(generation) > 5 and sum(b.draft.has_proposal) > 5
        again = len(b.draft.preparations)
        await b.run(40, 4, 0.0, **ON)
        later = [asked.withholds for asked in b.draft.preparations[again:] if asked is not None]
        assert later and not any(later), "for all outputs"


async def test_drafters_that_are_here_say_nothing_of_the_way_to_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no time at all. Nor does one draft say how far another is."""
    monkeypatch.setattr(fake_peers, "DRAFT_TIMES", CallTimes(started_at=0.0, elapsed=3.0, queue=0.0, compute=1.0))
    async with bench(withholds=True) as b:
        b.target.delay = 0.005
        await b.run(40, 4, 0.0, drafter=Drafter.NGRAM)
        await b.run(40, 4, 0.0, **ON)
        assert withheld(b) == {False}


async def test_a_target_that_does_not_take_them_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor others beside it. Also one that is replaced by an older version while the draft prepares a round."""
    for target_count in (1, 2):
        async with bench(withholds=target_count == 2, target_count=target_count) as b:
            if target_count == 2:
                _, other = b.pair.target.links.values()
                assert other.info is not None
                other.info = replace(other.info, takes_withheld_distributions=False)
            await b.run(40, 4, 0.0, **ON)
            assert withheld(b) == {False}
    monkeypatch.setattr(Withholding, "pays", True)
    async with bench(withholds=True) as b:
        b.target.delay = 0.005
        (link,) = b.pair.target.links.values()
        assert link.info is not None
        link.info = replace(link.info, takes_withheld_distributions=False)
        generation = await b.run(40, 4, 0.0, **ON)
        assert hits(generation) > 5 and not b.target.bare_count


async def test_an_older_draft_that_sends_them_is_not_asked_for_them() -> None:
    def whole(block: AheadBlock) -> AheadBlock:
        block.proposal.ClearField("distributions")
        return block

    async with bench(withholds=True) as b:
        b.target.delay, b.draft.changes_block = 0.005, whole
        generation = await b.run(40, 4, 0.0, **ON)
        assert hits(generation) > 5 and sum(b.draft.has_proposal) == hits(generation) + 1


async def test_a_draft_that_dies_before_it_sends_them_costs_no_token() -> None:
    """The target has begun, and gets another call."""
    async with bench(withholds=True) as b:
        b.target.delay = 0.005
        generation = b.generation(60, 4, **ON)
        async for _ in generation.parts():
            if hits(generation) == 3:
                b.draft.faults.before = dict.fromkeys(range(1000), AWAY)
        assert generation.output.token_ids == continuation(PROMPT, 60)
        assert generation.acceptance.fallback_count > 0 and len(b.target.opened) == 1
        await b.check_closed()


async def test_an_answer_with_other_tokens_is_taken_as_it_is() -> None:
    def other(block: AheadBlock) -> AheadBlock:
        block.proposal.token_ids[0] ^= 1
        return block

    async with bench(withholds=True) as b:
        b.target.delay, b.draft.changes_block = 0.005, other
        generation = await b.run(40, 4, 0.0, **ON)
        assert not hits(generation) and generation.acceptance.ahead_counts[AheadOutcome.MISS] > 5


async def test_proposals_that_come_before_the_answer_do_not_end_the_wait_for_it() -> None:
    async with bench(withholds=True) as b:
        b.draft.delay, b.draft.push_delay = 0.02, 0.008
        generation = await b.run(20, 4, 0.0, **ON)
        assert generation.acceptance.round_count == generation.acceptance.draft_round_count
        assert not any(b.draft.has_proposal[4:])


async def test_a_draft_that_hangs_after_its_tokens_is_waited_for_once() -> None:
    async with bench(withholds=True) as b:
        b.target.delay = 0.004
        generation = b.generation(40, 4, **ON)
        async with asyncio.timeout(5.0):
            async for _ in generation.parts():
                if hits(generation) == 2:
                    b.draft.delay = 30.0
        assert generation.output.token_ids == continuation(PROMPT, 40)
        await b.check_closed()


async def test_a_target_that_has_not_begun_makes_the_round_wait_for_the_distributions() -> None:
    """Calls on condition may be lost. Then nothing is withheld any more."""
    waits: list[float] = []
    add = Withholding.add

    def noting(withholding: Withholding, judged: Asking) -> None:
        assert isinstance(judged, Round)
        if judged.asked_for is not None:
            waits.append(judged.draft_elapsed)
        add(withholding, judged)

    usual = CallTimes(started_at=0.0, elapsed=20e-6, queue=0.0, compute=20e-6)
    for loses in (False, True):
        async with bench(withholds=True) as b:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fake_peers, "VERIFY_TIMES", usual)
                patch.setattr(Withholding, "add", noting)
                b.target.delay, b.target.loses_conditions = 0.005, loses
                await b.run(150, 4, 0.0, **ON)
            if loses:
                assert set(waits) == {fake_peers.DRAFT_TIMES.elapsed}
                assert not [asked.withholds for asked in b.draft.preparations if asked is not None][-1]
            else:
                assert set(waits) == {0.0} and len(waits) > 20
            waits.clear()


async def test_a_call_that_opened_the_sequence_again_is_not_a_usual_one() -> None:
    usual: list[bool] = []
    end = Round.end

    def noting(judged: Round, *args: Any) -> None:
        end(judged, *args)
        if judged.asked_for is not None:
            usual.append(judged.is_usual)

    async with bench(withholds=True) as b:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Round, "end", noting)
            b.target.delay = 0.005
            generation = b.generation(60, 4, **ON)
            async for _ in generation.parts():
                if hits(generation) == 3:
                    b.draft.held.clear()
    assert usual[1:3] == [True] * 2 and len(b.draft.opened) == 2
    assert False in usual[3:], "the draft had forgotten the sequence"
