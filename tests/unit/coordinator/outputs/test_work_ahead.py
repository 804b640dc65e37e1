"""Working ahead: proposals and verdicts that come before they are asked for change the times, never a token."""

from typing import Any

from coordinator.adaptive.ahead_outcome import AheadOutcome
from coordinator.outputs.generation import Generation
from coordinator.peers.early_calls import EarlyResult
from specpair.options import WorkAhead
from tests.unit.coordinator.pair_bench import bench

ON: dict[str, Any] = {"work_ahead": WorkAhead.ON}


def hits(generation: Generation) -> int:
    return generation.acceptance.ahead_counts[AheadOutcome.HIT]


async def test_a_prepared_proposal_is_verified_without_waiting_for_the_draft() -> None:
    async with bench() as b:
        b.target.delay = 0.005
        generation = await b.run(40, 4, 0.0, **ON)
        counts = generation.acceptance.ahead_counts
        assert counts[AheadOutcome.HIT] > 5 and not counts[AheadOutcome.MISS]
        assert sum(b.draft.has_proposal) == counts[AheadOutcome.HIT]


async def test_the_output_has_the_same_rounds_with_and_without() -> None:
    taken = []
    for mode in WorkAhead:
        async with bench() as b:
            b.target.delay = 0.002
            generation = await b.run(40, 4, 0.0, work_ahead=mode)
            acceptance = generation.acceptance
            taken.append((acceptance.drafted_per_position, acceptance.accepted_per_position, acceptance.round_count))
    assert taken[0] == taken[1] == taken[2]


async def test_off_asks_for_nothing_ahead() -> None:
    async with bench() as b:
        generation = await b.run(40, 4, 0.0, work_ahead=WorkAhead.OFF)
        assert set(b.draft.preparations) == {None} and not any(generation.acceptance.ahead_counts.values())


async def test_the_verdict_of_a_round_that_was_sent_early_is_used() -> None:
    async with bench() as b:
        b.target.delay = 0.005
        generation = await b.run(40, 4, 0.0, **ON)
        met = b.pair.target.early_counts[EarlyResult.MET]
        assert met == b.target.met_count == hits(generation)
        assert b.pair.target.early_counts[EarlyResult.NOT_MET] > met
