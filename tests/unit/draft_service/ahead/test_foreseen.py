"""Which outcomes are prepared for where the target's own token is drawn by noise that the draft can make."""

import asyncio
from dataclasses import replace

import pytest
from torch import zeros

from draft_service.ahead.ahead import WorkAhead
from draft_service.ahead.generation import Generation
from draft_service.ahead.odds import Odds
from draft_service.ahead.row_cost import RowCost
from draft_service.proposal import AheadOrder
from specpair.options import Encoding
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.outlook import Outlook
from specpair.speculation.own_token import foresee
from tests.unit.draft_service.ahead.test_ahead import BLOCK, LENGTH, FakeEngine, begun, call_of, drafted, held_sequence


@pytest.mark.parametrize("dense", [False, True])
async def test_where_rows_are_sent_the_noise_of_the_targets_own_token_says_which_to_prepare_for(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the step whose outcome is guessed at. The drawn token never comes after it was rejected."""
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: 0.0)
    ids = list(range(90, 150))
    row = CountRow(ids, [TOTAL // len(ids)] * len(ids))
    probabilities = zeros(200)
    probabilities[ids] = 1 / len(ids)
    for step in (0, 3):
        ahead, held = WorkAhead(engine := FakeEngine()), held_sequence(temperature=1.0)
        held.last_step = step
        await asyncio.sleep(0)  # until it is answered
        rows = {"dense": [probabilities] * len(BLOCK)} if dense else {"counts": [row] * len(BLOCK)}
        ahead.begin(
            held,
            call_of(step=step),
            replace(drafted(), outlooks=(), **{"counts": [], **rows}),
            AheadOrder(max_outcomes=64, count=4, min_confidence=0.0, max_length=100),
            lambda block: None,
        )
        (likely,) = foresee([row], 1, step)
        for accepted, drawn in enumerate(BLOCK):
            ends = [work.sequence.tokens[LENGTH:] for work in engine.works if work.looks_beyond and work.count == 4]
            first = {tokens[-1] for tokens in ends if len(tokens) == accepted + 1 and tokens[:-1] == BLOCK[:accepted]}
            assert first and first <= set(likely.token_ids) - {drawn}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_how_sure_the_draft_was_is_said_by_what_it_drew_from(temperature: float) -> None:
    """By the outlook where it was noted, as at temperature 0, where a row that is sent is certain; else by the row."""
    held = held_sequence(temperature=temperature)
    row = CountRow([*BLOCK, 7], [TOTAL // 8] * 4 + [TOTAL // 2])
    proposal = drafted() if temperature == 0.0 else replace(drafted(), outlooks=(), counts=[row] * len(BLOCK))
    order = AheadOrder(max_outcomes=64, count=4, min_confidence=0.0, max_length=100)
    generation = Generation(FakeEngine(), Odds(), held, call_of(), proposal, order, lambda block: None)
    expected = 0.3 if temperature == 0.0 else 0.125
    assert [row.confidence for row in generation._rows] == pytest.approx([expected] * len(BLOCK))


@pytest.mark.parametrize(("lenience", "has_peek"), [(1.0, False), (0.5, True)])
async def test_a_row_that_is_certain_runs_no_race(lenience: float, has_peek: bool) -> None:
    """With lenience a proposal decides about greedy outputs, too, and the token after it is looked at first."""
    held = held_sequence()
    held.options = replace(held.options, lenience=lenience)
    await begun(ahead := WorkAhead(engine := FakeEngine()), held)
    assert ahead.branch_count and all(work.race_step is None for work in engine.works)
    assert any(work.count == 1 and not work.looks_beyond for work in engine.works) is has_peek


async def test_bonus_tokens_that_are_still_to_be_looked_at_have_their_rows_already() -> None:
    ahead = WorkAhead(engine := FakeEngine())
    ahead.most_rows = 8
    first, second = held_sequence(temperature=1.0), held_sequence(temperature=1.0)
    for held in (first, second):  # else the token after the block is drawn with what follows it
        held.options = replace(held.options, encoding=Encoding.DENSE)
    await begun(ahead, first)
    peek = next(work for work in engine.works if len(work.sequence.tokens) == LENGTH + len(BLOCK) and work.count == 1)
    await begun(ahead, second)
    peek.outlooks.append(Outlook(list(range(600, 608)), [0.125] * 8))
    peek.future.set_result(None)
    await asyncio.sleep(0)
    assert ahead.branch_count == ahead.most_rows
