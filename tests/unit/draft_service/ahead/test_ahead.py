"""Work ahead of all sequences, without a model: what is prepared, for whom, and how much."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, empty

from draft_service.ahead import ahead as module
from draft_service.ahead.ahead import (
    LATELY_SECONDS,
    MAX_BYTES,
    MAX_COPIED_TOKENS,
    USUAL_PERIOD,
    WorkAhead,
)
from draft_service.ahead.counts import Result
from draft_service.ahead.odds import Row
from draft_service.ahead.outcomes import Outcome
from draft_service.ahead.row_cost import RowCost
from draft_service.proposal import AheadOrder, Deliver, Drafted, PreparedBlock, ProposeCall
from specpair.engine.work import Work
from specpair.options import Drafter, Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.count_row import CountRow
from specpair.speculation.outlook import Outlook

LENGTH = 10
BLOCK = list(range(100, 104))
ROW_SECONDS = 0.0002
LEAST_CHANCE = ROW_SECONDS / USUAL_PERIOD
"""Of an outcome, for each sequence, before it is known how often they ask."""
ROW_BYTES = 1 << 20
"""Of a dense row."""
DENSE_ROW: Tensor = empty(ROW_BYTES // 4)


@pytest.fixture(autouse=True)
def the_same_row_cost_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: count * ROW_SECONDS)


class FakeEngine:
    """Notes works, and runs none."""

    def __init__(self) -> None:
        self.works: list[Any] = []
        self.brought: list[Work] = []

    def submit(self, work: Work) -> "asyncio.Future[None]":
        work.future = asyncio.get_running_loop().create_future()
        self.works.append(work)
        return work.future

    def bring_forward(self, work: Work) -> None:
        self.brought.append(work)

    def discard(self, sequences: list[Sequence]) -> None: ...


def held_sequence(length: int = LENGTH, temperature: float = 0.0) -> HeldSequence[Drafted]:
    """One that was just answered with `BLOCK` in its step 0."""
    options = SequenceOptions(sampling=SamplingOptions(seed=1, temperature=temperature), rule=Rule.TOKEN)
    held: HeldSequence[Drafted] = HeldSequence(options, length, length, Sequence([*range(length), *BLOCK]), length)
    held.last_step = 0
    held.answer = asyncio.ensure_future(answered())
    return held


async def answered() -> Any:
    return None


def call_of(length: int = LENGTH, step: int = 0, appended: list[int] | None = None) -> ProposeCall:
    return ProposeCall(sequence_id="s", step=step, base_length=length, appended=appended or [], count=len(BLOCK))


def drafted(dense: bool = False) -> Drafted:
    looks = tuple(Outlook([token, *range(500, 507)], [0.3] + [0.1] * 7) for token in BLOCK)
    return Drafted(
        drafter=Drafter.MODEL,
        tokens=BLOCK,
        counts=[CountRow((token,), (1 << 24,)) for token in BLOCK],
        dense=[DENSE_ROW for _ in BLOCK] if dense else [],
        queue_time=0.0,
        compute_time=0.0,
        batch_size=1,
        outlooks=looks,
    )


async def begun(
    ahead: WorkAhead,
    held: HeldSequence[Drafted],
    outcomes: int = 64,
    *,
    dense: bool = False,
    deliver: Deliver = lambda block: None,
) -> None:
    """Begins with work ahead of a sequence that was just answered."""
    await asyncio.sleep(0)
    order = AheadOrder(max_outcomes=outcomes, count=len(BLOCK), min_confidence=0.0, max_length=10**6)
    ahead.begin(held, call_of(held.opened_with), drafted(dense), order, deliver)


async def test_the_branch_that_is_claimed_is_brought_forward_by_the_engine_alone() -> None:
    """The device thread may be in the middle of a turn that depends on its state."""
    engine, held = FakeEngine(), held_sequence()
    ahead = WorkAhead(engine)
    await begun(ahead, held)
    work = next(work for work in engine.works if work.sequence.tokens[LENGTH:] == [500])
    work.parent = None
    branch = ahead.claim(held, call_of(LENGTH, 1, [500]))
    assert branch is not None and held.cached is branch.sequence
    assert engine.brought == [work] and work.is_background and work.sequence.is_branch


@pytest.mark.parametrize("length", [LENGTH - 4, LENGTH])
async def test_nothing_is_prepared_for_what_was_rolled_back(length: int) -> None:
    """A rollback may come between the answer and the work that it is to be followed by."""
    engine, held = FakeEngine(), held_sequence()
    ahead = WorkAhead(engine)
    held.cached.replace_from(length, [])
    held.cut(length)
    held.answer = None
    await begun(ahead, held)
    assert not engine.works and not ahead.branch_count


async def test_nothing_is_prepared_for_a_sequence_of_another_length() -> None:
    engine, held = FakeEngine(), held_sequence()
    ahead = WorkAhead(engine)
    held.length -= 1
    await begun(ahead, held)
    assert not engine.works


class Clock:
    """Stands in for `time` where work ahead reads it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize("pause", [0.0, LATELY_SECONDS / 8, LATELY_SECONDS + 0.1])
async def test_no_more_is_prepared_at_a_time_than_all_may_have(clock: Clock, pause: float) -> None:
    ahead = WorkAhead(FakeEngine())
    for _ in range(40):
        clock.now += pause
        await begun(ahead, held_sequence())
        assert 0 < ahead.branch_count <= ahead.most_rows


async def test_who_has_not_asked_lately_makes_room(clock: Clock) -> None:
    ahead = WorkAhead(FakeEngine())
    ahead.most_rows = 8
    old, new = held_sequence(), held_sequence()
    await begun(ahead, old)
    count = ahead.branch_count
    clock.now += LATELY_SECONDS + 0.1
    await begun(ahead, new)
    ahead.drop(old.cached)
    assert ahead.branch_count == count > 0, "all are the new one's"


@pytest.mark.parametrize(("temperature", "race_step"), [(0.0, None), (1.0, 0)])
async def test_bonus_tokens_are_drawn_with_what_follows_them_where_that_says_what_they_are(
    monkeypatch: pytest.MonkeyPatch, temperature: float, race_step: int | None
) -> None:
    """Each of a rank of its own; a second one of the same token, one that ends the output, and one after which nothing
    was drawn are not sent. The next step is then learnt from. Where rows are sent the token is the one of a race."""
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: 0.0)
    ahead, held = WorkAhead(engine := FakeEngine()), held_sequence(temperature=temperature)
    held.options = replace(held.options, sampling=replace(held.options.sampling, stop_token_ids=(602,)))
    blocks: list[PreparedBlock] = []
    await begun(ahead, held, deliver=blocks.append)
    works = [work for work in engine.works if work.count == len(BLOCK) + 1]
    assert [work.rank for work in works] == [*range(8)] and all(work.looks_beyond for work in works)
    assert {work.race_step for work in works} == {race_step}
    assert all(work.sequence.tokens == [*range(LENGTH), *BLOCK] for work in works)
    count = ahead.branch_count
    for work, tokens in zip(works, [[600, 1, 2], [601, 1, 2], [601, 1, 2], [602, 1, 2], [603], []], strict=False):
        work.parent, work.tokens = None, tokens
        work.outlooks = [Outlook(list(range(600, 608)), [0.125] * 8)] * len(tokens)
        work.future.set_result(None)
    await asyncio.sleep(0)
    assert [(block.accepted_count, block.next_token_id) for block in blocks] == [(4, 600), (4, 601)]
    assert all(block.drafted.tokens == [1, 2] for block in blocks) and ahead.branch_count == count
    again: list[PreparedBlock] = []
    await begun(ahead, held, deliver=again.append)
    assert len(again) == 2
    branch = ahead.claim(held, call_of(LENGTH, 1, [*BLOCK, 601]))
    assert branch is not None and branch.work is works[1]
    odds = ahead._odds.of(held.options.rule, held.options.sampling)
    assert odds._ranks[True][1].among(0.0) > 0.0


@pytest.mark.parametrize("token", [601, 602])
async def test_a_proposal_under_way_is_found_by_the_token_that_it_has_drawn(token: int) -> None:
    """Nobody was told of it yet."""
    ahead, held = WorkAhead(engine := FakeEngine()), held_sequence()
    await begun(ahead, held)
    work = next(work for work in engine.works if work.rank == 1)
    work.parent, work.tokens = None, [601]
    branch = ahead.claim(held, call_of(LENGTH, 1, [*BLOCK, token]))
    assert branch is None if token == 602 else branch is not None and branch.work is work
    assert ahead.counts.calls[Result.MISS if token == 602 else Result.LATE, len(BLOCK)] == 1
    assert engine.brought == ([] if token == 602 else [work])


async def test_what_ends_the_output_leaves_the_likeliest_of_the_others() -> None:
    """However unlikely it is, if there is nothing else."""
    ahead, held = WorkAhead(engine := FakeEngine()), held_sequence()
    held.options = replace(held.options, sampling=replace(held.options.sampling, stop_token_ids=(100, 500)))
    odds = ahead._odds.of(held.options.rule, held.options.sampling)
    for _ in range(400):
        odds.learn([Row(100, Outlook([100, 500, 501], [0.3, 0.6, 0.1]))], None, Outcome(0, 500))
    await begun(ahead, held)
    assert len(engine.works) == 1 and engine.works[0].sequence.tokens[LENGTH:][0] in range(501, 507)


async def test_what_is_unlikely_is_left_out_beside_others(clock: Clock) -> None:
    """Its row would delay theirs. Those that have not asked lately do not count."""
    ahead = WorkAhead(engine := FakeEngine())
    ahead.most_rows = 4096

    async def chances() -> list[float]:
        engine.works.clear()
        await begun(ahead, held_sequence())
        return [work.chance for work in engine.works if work.looks_beyond]

    alone = await chances()
    assert alone and min(alone) >= LEAST_CHANCE
    for count in range(2, 10):
        least = count * LEAST_CHANCE
        assert await chances() == [chance for chance in alone if chance >= least], count
    assert len(await chances()) < len(alone) / 2
    clock.now += LATELY_SECONDS + 0.1
    assert await chances() == alone


async def test_what_is_very_unlikely_is_left_out_for_one_sequence_too(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row would delay the likelier ones."""

    async def chances() -> list[float]:
        ahead = WorkAhead(engine := FakeEngine())
        ahead.most_rows = 4096
        await begun(ahead, held_sequence())
        return [work.chance for work in engine.works if work.looks_beyond]

    usual = await chances()
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: 0.0)
    every = await chances()
    least = sorted(every)[len(every) // 2]
    monkeypatch.setattr(RowCost, "seconds", lambda _, count, size: count * least * USUAL_PERIOD)
    assert await chances() == [chance for chance in every if chance >= least] != every
    assert usual == [chance for chance in every if chance >= LEAST_CHANCE]


async def test_where_rounds_are_long_less_likely_outcomes_are_prepared_for(clock: Clock) -> None:
    """What a row costs the processors is then a smaller part of them."""
    ahead = WorkAhead(engine := FakeEngine())
    ahead.most_rows = 4096
    asking = held_sequence().cached

    async def least() -> float:
        engine.works.clear()
        ahead._share(asking)
        await begun(ahead, held_sequence())
        return min(work.chance for work in engine.works if work.looks_beyond)

    first = await least()
    for _ in range(400):
        clock.now += 10 * USUAL_PERIOD
        ahead._share(asking)
    clock.now += LATELY_SECONDS + 0.1  # the other one has not asked lately
    last = await least()
    assert 2 * LEAST_CHANCE / 10 <= last < 2 * LEAST_CHANCE <= first


async def test_large_proposals_are_fewer(clock: Clock) -> None:
    most = MAX_BYTES // (len(BLOCK) * ROW_BYTES)
    ahead = WorkAhead(FakeEngine())
    ahead.most_rows = 4096
    for _ in range(30):
        await begun(ahead, held_sequence(), dense=True)
    assert 0 < ahead.branch_count <= most


async def test_a_repeated_call_gets_what_is_ready_on_another_stream_alone() -> None:
    ahead, held = WorkAhead(engine := FakeEngine()), held_sequence()
    first: list[PreparedBlock] = []
    second: list[PreparedBlock] = []
    await begun(ahead, held, deliver=first.append)
    for work in engine.works:
        if work.sequence.tokens[LENGTH:] == [500]:
            work.tokens = [1]
            work.future.set_result(None)
    await asyncio.sleep(0)
    assert len(first) == 1
    await begun(ahead, held, deliver=first.append)
    assert len(first) == 1, "it has it"
    await begun(ahead, held, deliver=second.append)
    assert len(second) == 1 and len(first) == 1


@pytest.mark.parametrize("length", [LENGTH, MAX_COPIED_TOKENS // 10, 2 * MAX_COPIED_TOKENS])
async def test_long_sequences_have_fewer_branches(length: int) -> None:
    ahead, held = WorkAhead(engine := FakeEngine()), held_sequence(length)
    await begun(ahead, held)
    most = 2 * max(MAX_COPIED_TOKENS, held.length + len(BLOCK))
    assert engine.works and sum(len(work.sequence.tokens) for work in engine.works) <= most
    assert ahead.branch_count <= max(1, MAX_COPIED_TOKENS // length)


async def test_a_sequence_that_is_closed_has_no_share_any_more() -> None:
    """Also one that went on from a branch."""
    ahead, gone, new = WorkAhead(engine := FakeEngine()), held_sequence(), held_sequence()
    ahead.most_rows = 8
    await begun(ahead, gone)
    next(work for work in engine.works if work.sequence.tokens[LENGTH:] == [500]).parent = None
    assert ahead.claim(gone, call_of(LENGTH, 1, [500])) is not None
    ahead.forget(gone.cached)
    engine.works.clear()
    await begun(ahead, new)
    assert sum(work.count > 1 for work in engine.works) > ahead.most_rows // 2
