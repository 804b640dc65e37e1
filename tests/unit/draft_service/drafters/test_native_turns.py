"""Draws of the compiled runner that end before their proposals do, and what branches of work ahead draw."""

import time
from ctypes import c_int64
from pathlib import Path
from typing import Any

import pytest
import torch

from draft_service.drafters.model import ProposeWork
from specpair.engine_config import Pace
from specpair.models.chain_miss import ChainMiss
from specpair.models.chains import Turn
from specpair.models.stop_flag import StopFlag
from specpair.native.library import native_library
from specpair.speculation.outlook import WIDTH, Outlook
from specpair.whole_drafting import chain_of, holding_of
from tests.unit.draft_service.drafters.test_chains import KINDS, VOCABULARY, run, started, works_of
from tests.unit.draft_service.drafters.test_native_chains import DRAWN, HEADS, cached, check_same, load

pytestmark = pytest.mark.skipif(native_library() is None, reason="needs a C compiler")


@pytest.fixture
def set_flag(monkeypatch: pytest.MonkeyPatch) -> StopFlag:
    """A flag that is set for good; draws look at it although their steps are short."""
    monkeypatch.setattr("draft_service.drafters.chains.LONG_STEP", 0.0)
    stop = StopFlag()
    stop.set()
    return stop


@pytest.mark.parametrize("least", [0.0, 0.2])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_draw_that_is_stopped_goes_on_to_the_same_proposal(
    least: float, threads: int, set_flag: StopFlag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    try:
        runner = load(tmp_path, threads=threads)
        counts = [3 + 2 * place % 7 for place in range(len(DRAWN))]
        actual, expected = works_of(DRAWN, counts, least), works_of(DRAWN, counts, least)
        passes: list[int] = []
        forward = runner.forward
        monkeypatch.setattr(runner, "forward", lambda batch: passes.append(len(batch.rows)) or forward(batch))
        run(runner, actual, True, set_flag)
        assert len(passes) == max(len(work.tokens) for work in actual) and passes[0] == len(DRAWN)
        run(runner, expected, False)
        check_same(actual, expected)
    finally:
        torch.set_num_threads(before)
    assert not runner.chain_misses


@torch.inference_mode()
def test_a_draw_ends_with_what_is_waited_for(tmp_path: Path) -> None:
    """Proposals that nobody waits for go on in later draws."""
    runner = load(tmp_path)
    actual, expected = works_of(DRAWN, [8] * len(DRAWN)), works_of(DRAWN, [8] * len(DRAWN))
    for works in (actual, expected):
        works[1].count = 3
        works[2].count = 5
    for work in actual:
        work.is_background = work not in (actual[1], actual[2])
    turns, statistics = started(runner, actual, True)
    turns._with_spare = lambda works: works  # type: ignore[method-assign]
    turns.turn()
    assert [work.done for work in actual] == [not work.is_background for work in actual]
    assert [len(work.tokens) for work in actual] == [3 if work is actual[1] else 5 for work in actual]
    assert statistics.decode_tokens == sum(len(work.tokens) for work in actual)
    run(runner, [work for work in actual if not work.done], True)
    run(runner, expected, False)
    check_same(actual, expected)


@torch.inference_mode()
@pytest.mark.parametrize("can_stop", [False, True])
def test_a_draw_that_can_be_stopped_ends_once_half_is_whole(can_stop: bool, tmp_path: Path) -> None:
    """What is whole is handed over before the others are."""
    runner = load(tmp_path)
    assert runner.chains is not None
    actual, expected = works_of(DRAWN, [8] * len(DRAWN)), works_of(DRAWN, [8] * len(DRAWN))
    half = (len(DRAWN) + 1) // 2
    for works in (actual, expected):
        for place, work in enumerate(works[: half + 1]):
            work.count = 2 if place < half - 1 else 4 if place == half - 1 else 6
    for work in actual:
        work.is_background = True
    if not can_stop:
        draw = runner.chains.draw
        runner.chains.draw = lambda logits, chains, turn: draw(logits, chains)  # type: ignore[method-assign]
    turns, _ = started(runner, actual, True)
    turns._with_spare = lambda works: works  # type: ignore[method-assign]
    turns.turn()
    lengths = [min(work.count, 4) if can_stop else work.count for work in actual]
    assert [len(work.tokens) for work in actual] == lengths
    assert [work.done for work in actual] == [
        work.count == length for work, length in zip(actual, lengths, strict=True)
    ]
    run(runner, [work for work in actual if not work.done], True)
    run(runner, expected, False)
    check_same(actual, expected)


@torch.inference_mode()
def test_who_is_drawn_token_by_token_waits_for_one_step_of_the_others(tmp_path: Path) -> None:
    """And so does who cannot go on in this pass at all."""
    runner = load(tmp_path)
    awaited, *branches = works_of(["top-p", "block", "coupled"], [4, 8, 8])
    for work in branches:
        work.is_background = True
    stop = StopFlag()
    turns, _ = started(runner, [awaited, *branches], True, stop)
    turns._with_spare = lambda works: works  # type: ignore[method-assign]
    for step in range(1, 4):
        turns.turn()
        assert [len(work.tokens) for work in (awaited, *branches)] == [step] * 3
    for flag, others in ((0, []), (1, works_of(["greedy"], [1]))):
        stop.clear()
        turns.works = [*branches, *others]
        turns._hurry_for_others(list(branches))
        assert c_int64.from_address(stop.address).value == flag


def test_branches_without_their_cache_join_after_a_step(tmp_path: Path) -> None:
    stop = StopFlag()
    works = works_of(["block", "coupled"], [8, 8])
    for work in works:
        work.is_background = True
    turns, _ = started(load(tmp_path), works, True, stop)
    for forked, flag in ((2, 0), (1, 1)):
        turns._with_cache = lambda some, seconds=0.0, forked=forked: some[:forked]  # type: ignore[method-assign]
        turns._with_spare(works)  # type: ignore[arg-type]
        assert c_int64.from_address(stop.address).value == flag


LOOKING = ["greedy", "greedy small vocabulary", "greedy coupled", "coupled", "block"]


def looking(count: int) -> list[ProposeWork]:
    works = works_of(LOOKING, [count] * len(LOOKING))
    for work in works:
        work.looks = True
    return works


def check_outlooks(actual: list[Outlook], expected: list[Outlook]) -> None:
    assert [len(outlook.token_ids) for outlook in actual] == [len(outlook.token_ids) for outlook in expected]
    for own, other in zip(actual, expected, strict=True):
        assert list(own.token_ids) == list(other.token_ids) and len(own.token_ids) <= WIDTH
        assert own.shares == pytest.approx(other.shares, rel=1e-5)


@pytest.mark.parametrize("listed", HEADS.values(), ids=HEADS)
def test_outlooks_are_those_of_the_rows(listed: Any, tmp_path: Path) -> None:
    runner = load(tmp_path, listed)
    actual, expected = looking(6), looking(6)
    run(runner, actual, True)
    run(runner, expected, False)
    check_same(actual, expected)
    for own, other in zip(actual, expected, strict=True):
        assert len(own.outlooks) == (0 if own.counts and own.options is KINDS["block"] else 6)
        check_outlooks(own.outlooks, other.outlooks)
    assert not runner.chain_misses


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_branch_looks_one_row_further_than_it_draws(is_awaited: bool, tmp_path: Path) -> None:
    """And who waits for it does not wait for that."""
    runner = load(tmp_path)
    actual, expected = looking(5), looking(6)
    for work in actual:
        work.looks_beyond, work.is_background = True, not is_awaited
    run(runner, actual, True)
    run(runner, expected, False)
    for own, other in zip(actual, expected, strict=True):
        assert own.tokens == other.tokens[:5] and len(own.counts) in (0, 5)
        beyond = [dict(zip(row.token_ids, row.counts, strict=True)) for row in own.beyond]
        known = [dict(zip(row.token_ids, row.counts, strict=True)) for row in other.counts[5:]]
        assert beyond == ([] if is_awaited else known)
        check_outlooks(own.outlooks, other.outlooks[: 5 if is_awaited else 6])
        fed = len(own.sequence.tokens) - is_awaited
        assert own.sequence.valid_length == fed
        assert all(torch.equal(*pair) for pair in zip(cached(own, fed), cached(other, fed), strict=True))
    runner.cache.check_integrity()


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(("kind", "race_step"), [("greedy", None), ("coupled", None), ("block", 5)])
def test_a_proposal_may_begin_with_a_token_of_any_rank(
    kind: str, race_step: int | None, stops: bool, set_flag: StopFlag, tmp_path: Path
) -> None:
    """Of the outlook of its first row, and only there; with a rank that this does not have nothing is drawn. Where rows
    are sent it is the outlook of a race."""
    runner = load(tmp_path)

    def ranked() -> list[ProposeWork]:
        works = [work for _ in range(WIDTH + 1) for work in works_of([kind], [4])]
        for rank, work in enumerate(works):
            work.rank, work.looks, work.race_step = rank, True, race_step
        return works

    actual, expected = ranked(), ranked()
    run(runner, actual, True, set_flag if stops else None)
    run(runner, expected, False)
    known = list(expected[0].outlooks[0].token_ids)
    count = len(known)
    assert count > 2
    check_same(actual[:count], expected[:count])
    for works in (actual, expected):
        assert [work.tokens[0] for work in works[:count]] == known
        assert all(len(work.tokens) == 4 for work in works[:count])
        assert all(work.done and not work.tokens and not work.outlooks and not work.error for work in works[count:])
    assert not runner.chain_misses


def test_a_proposal_of_32_tokens_is_drawn_whole_with_the_token_before_it(tmp_path: Path) -> None:
    runner = load(tmp_path)
    works = works_of(["coupled", "coupled"], [33, 34])
    run(runner, works, True)
    assert [len(work.tokens) for work in works] == [33, 34] and runner.chain_misses == {ChainMiss.LENGTH: 1}


def test_the_steps_of_a_draw_keep_a_pace(tmp_path: Path) -> None:
    runner = load(tmp_path)
    works = works_of(["block", "greedy"], [6, 3])
    runner_chains = runner.chains
    assert runner_chains is not None
    for work in works:
        work.sequence.holding = runner.cache.open([])
        runner.cache.append(work.sequence.holding, len(work.sequence.tokens) + work.count)
        stack = work.sequence.holding.storage.stacks[0]  # new memory may hold anything, and the prompt is not fed
        stack.keys.zero_()
        stack.values.zero_()
    chains = [chain_of(work, holding_of(work.sequence), VOCABULARY) for work in works]
    began = time.perf_counter()
    turn = Turn(pace=Pace(0.004, 0.001), due=began + 0.006)
    drawn = runner_chains.draw(torch.zeros(2, VOCABULARY), chains, turn)
    assert [len(one.tokens) for one in drawn] == [6, 3]
    assert time.perf_counter() - began > 0.006 + 2 * 0.006 + 3 * 0.005
