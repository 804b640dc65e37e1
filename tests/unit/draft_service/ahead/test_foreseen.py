"""Which outcomes are prepared for where the target's own token is drawn by noise that the draft can make."""

import asyncio
from dataclasses import replace

import pytest
from torch import zeros

from draft_service.ahead.ahead import WorkAhead
from draft_service.ahead.row_cost import RowCost
from draft_service.proposal import AheadOrder
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.own_token import foresee
from tests.unit.draft_service.ahead.test_ahead import BLOCK, LENGTH, FakeEngine, call_of, drafted, held_sequence


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
