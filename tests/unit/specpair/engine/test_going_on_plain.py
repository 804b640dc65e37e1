"""When sequences go on without a proposal."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from specpair.engine.going_on_plain import GoingOnPlain
from specpair.engine.next_work import following_works
from specpair.engine.work import Work
from specpair.sequences.absences import Absences
from specpair.sequences.sequence import Sequence

PASS = 0.02


@dataclass(eq=False)
class Judged(Work):
    """A work whose next call is here or not."""

    has_call: bool = False
    allows_plain: bool = True
    misses: bool = False

    @property
    def is_followed(self) -> bool:
        return self.has_call

    @property
    def has_missed(self) -> bool:
        return self.misses

    @property
    def may_go_on_plain(self) -> bool:
        return self.allows_plain

    def go_on(self) -> Work | None:
        return Work(sequence=self.sequence, row_count=5) if self.has_call else None

    def go_on_plain(self) -> Work | None:
        return Work(sequence=self.sequence, row_count=1)


def judged(accepted: int = 2, *, away: float | None = 0.008, **fields: Any) -> Judged:
    work = Judged(
        sequence=Sequence([1], absences=Absences(long=away)), row_count=5, path=list(range(accepted)), **fields
    )
    work.future = asyncio.get_running_loop().create_future()
    return work


def learnt(*, caught_up: float, accepted: int = 2) -> GoingOnPlain:
    """What was learnt from 400 works with a proposal and 400 without, of which so many were caught up with."""
    going_on_plain = GoingOnPlain()
    for index in range(400):
        going_on_plain.add([judged(accepted)])
        plain = judged(0, has_call=index % 100 < 100 * caught_up, went_on_plain=True)
        going_on_plain.add([plain])
    return going_on_plain


async def test_one_among_many_does_not_hold_them_up() -> None:
    going_on_plain = learnt(caught_up=0.9)
    assert going_on_plain.pays([judged()], 7, PASS)
    assert not going_on_plain.pays([judged()], 0, PASS), "alone, it has its proposal sooner than a pass takes"
    assert not going_on_plain.pays([judged() for _ in range(7)], 1, PASS), "nearly all of them wait for theirs"


async def test_nobody_waits_for_a_call_that_is_away_for_longer_than_a_pass() -> None:
    assert learnt(caught_up=0.9).pays([judged(away=0.03) for _ in range(7)], 1, PASS)


async def test_who_missed_is_away_for_long() -> None:
    """Its last answer may have been a hit: what counts is this one."""
    going_on_plain, works = learnt(caught_up=0.9), [judged(misses=True), judged()]
    for work in works:
        work.sequence.absences = Absences(short=0.003, long=0.025)
    assert going_on_plain.pays(works[:1], 1, PASS) and not going_on_plain.pays(works[1:], 1, PASS)


async def test_before_an_absence_is_known_others_decide() -> None:
    going_on_plain = learnt(caught_up=0.9)
    assert going_on_plain.pays([judged(away=None)], 1, PASS) and not going_on_plain.pays([judged(away=None)], 0, PASS)


@pytest.mark.parametrize(("caught_up", "accepted", "pays"), [(0.6, 1, True), (0.3, 5, False), (0.0, 1, False)])
async def test_a_proposal_that_seldom_comes_in_time_is_waited_for(caught_up: float, accepted: int, pays: bool) -> None:
    """Going on gives a token now, and a proposal in the next pass only if it is there by then."""
    assert learnt(caught_up=caught_up, accepted=accepted).pays([judged()], 7, PASS) is pays


async def test_what_did_not_pay_is_tried_again_from_time_to_time() -> None:
    going_on_plain = learnt(caught_up=0.0)
    tries = 0
    for _ in range(4000):
        if going_on_plain.pays([judged()], 7, PASS):
            tries += 1
            going_on_plain.add([judged(0, went_on_plain=True)])
        going_on_plain.add([judged()])
    assert 20 < tries < 400


async def test_calls_that_are_here_come_first() -> None:
    met, alone, bound = judged(has_call=True), judged(), judged(allows_plain=False)
    following = following_works([met, alone, bound], 5, learnt(caught_up=0.9), PASS)
    assert [work.sequence for work in following] == [met.sequence, alone.sequence]
    assert [work.went_on_plain for work in following] == [False, True]
    assert all(not work.future.done() for work in following)


async def test_works_that_failed_or_were_given_up_are_not_followed() -> None:
    failed, given_up = judged(), judged()
    failed.fail(ValueError("as the test asked"))
    given_up.future.cancel()
    assert not following_works([failed, given_up], 5, learnt(caught_up=0.9), PASS)
