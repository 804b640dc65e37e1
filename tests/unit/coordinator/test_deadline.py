"""A client's deadline bounds all that is waited for on its behalf, and is nobody's fault."""

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from coordinator.deadline import GRAIN, NEVER, Deadline
from coordinator.outputs.choices import Choices
from coordinator.outputs.generation import Generation
from coordinator.pair import Pair
from coordinator.peers import score_prompt
from specpair.errors import PeerUnavailableError
from tests.unit.coordinator.pair_bench import CONFIG, PROMPT, Bench, bench, request, until

LONG = 30.0
"""Seconds that whatever hangs would take."""
PATIENCE = 0.15
ROOM = 1.0
"""Seconds that a busy machine may be late."""


@pytest.fixture
async def b() -> AsyncIterator[Bench]:
    """A coordinator that is itself more patient than any client here."""
    async with bench() as made:
        made.pair = patient(made.pair)
        yield made


def patient(pair: Pair) -> Pair:
    return replace(pair, config=replace(CONFIG, draft_timeout=LONG, target_timeout=LONG))


@contextmanager
def ends_in_time() -> Iterator[None]:
    """What is inside ends at the client's deadline, neither earlier nor much later."""
    start = time.monotonic()
    with pytest.raises(PeerUnavailableError):
        yield
    assert PATIENCE - 2 * GRAIN < time.monotonic() - start < PATIENCE + ROOM


async def collect(pair: Pair, max_tokens: int = 40, count: int = 4, **options: object) -> None:
    choices = Choices(request(max_tokens, count, **options), pair, deadline=Deadline.after(PATIENCE))
    async for _ in choices.parts():
        pass


def nobody_is_blamed(b: Bench) -> bool:
    assert b.pair.draft is not None
    links = [*b.pair.target.links.values(), *b.pair.draft.links.values()]
    return all(link.breaker.is_closed for link in links)


def test_a_deadline_gives_what_is_left_but_never_nothing() -> None:
    deadline = Deadline.after(10.0)
    assert deadline.at_most(3.0) == 3.0
    assert 9.0 < deadline.at_most(60.0) == pytest.approx(deadline.remaining, abs=0.5)
    past = Deadline.after(-1.0)
    assert past.is_over and not deadline.is_over
    assert past.remaining == 0.0 and 0.0 < past.at_most(60.0) < GRAIN


def test_without_a_deadline_time_never_ends() -> None:
    assert NEVER.remaining == math.inf and not NEVER.is_over
    assert NEVER.at_most(60.0) == 60.0
    assert NEVER.or_after(5.0).at_most(60.0) == pytest.approx(5.0, abs=0.5)
    deadline = Deadline.after(1.0)
    assert deadline.or_after(5.0) is deadline


async def test_it_bounds_the_opening(b: Bench) -> None:
    b.target.open_delay = LONG
    with ends_in_time():
        await collect(b.pair)
    assert nobody_is_blamed(b)


async def test_it_bounds_a_fork(b: Bench) -> None:
    b.target.fork_delay = LONG
    b.target.delay = 0.02
    with ends_in_time():
        await collect(b.pair, n=2, best_of=2)
    assert nobody_is_blamed(b)


async def test_it_bounds_the_scoring_of_the_prompt(b: Bench) -> None:
    b.target.score_delay = LONG
    with ends_in_time():
        await score_prompt(b.pair.target, PROMPT, 0, LONG, Deadline.after(PATIENCE))
    assert nobody_is_blamed(b)


async def test_it_bounds_the_wait_for_a_target_to_score(b: Bench) -> None:
    b.target.say_health(is_serving=False)
    await until(lambda: not b.pair.target.is_there)
    with ends_in_time():
        await score_prompt(b.pair.target, PROMPT, 0, LONG, Deadline.after(PATIENCE))


@pytest.mark.parametrize("what", ["opening", "scoring"])
async def test_it_bounds_the_check_of_a_process_that_was_restarted(b: Bench, what: str) -> None:
    """Which goes on: for others the target is in use once it answers."""
    b.target.restart()
    b.target.info_delay = PATIENCE + 0.3
    with ends_in_time():
        if what == "opening":
            await collect(b.pair)
        else:
            await score_prompt(b.pair.target, PROMPT, 0, LONG, Deadline.after(PATIENCE))
    assert nobody_is_blamed(b) and not b.pair.target.is_there
    await until(lambda: b.pair.target.is_there)


async def test_it_bounds_a_proposal(b: Bench) -> None:
    b.draft.delay = LONG
    with ends_in_time():
        await collect(b.pair)
    assert nobody_is_blamed(b)


@pytest.mark.parametrize("is_copy", [False, True])
async def test_it_bounds_the_opening_at_the_draft(b: Bench, is_copy: bool) -> None:
    """Also where the request has ended: its places are given back when that has."""
    b.draft.open_delay, b.draft.fork_delay = (0.0, LONG) if is_copy else (LONG, 0.0)
    outputs = 2 if is_copy else 1
    with ends_in_time():
        await collect(b.pair, n=outputs, best_of=outputs)
    assert nobody_is_blamed(b)
    await b.check_closed()


async def test_a_draft_that_hangs_is_blamed_by_a_client_with_time() -> None:
    async with bench() as b:
        parts = Generation(request(), b.pair, deadline=Deadline.after(LONG)).parts()
        for _ in range(3):
            await anext(parts)
        b.draft.delay = LONG
        await anext(parts)
        assert not nobody_is_blamed(b)
        await parts.aclose()
