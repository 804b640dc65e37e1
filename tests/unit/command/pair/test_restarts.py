"""Services of `specpair up` that end: real processes, started again."""

import asyncio
import errno
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from command.pair import restarts
from command.pair.child import Child, OnLine
from command.pair.local_pair import (
    LOOPBACK,
    ServicePlan,
    announce,
    announce_one,
    free_port,
    plan_service,
    run_children,
    start_service,
)
from command.pair.restarts import PAUSES, keep_running
from specpair.rpc.retry import RetryPolicy

DYING = ServicePlan(name="target", arguments=["serve", "target", "--no-such-flag"], address="127.0.0.1:1")
"""It says what is wrong, and ends with status 2."""
FIRST = 0.25
PATIENCE = 60.0


class Kept:
    """Services that are kept running, with what was printed."""

    def __init__(self, plans: list[ServicePlan], *, is_quiet: bool = False):
        self.plans = plans
        self.is_quiet = is_quiet
        self.children: list[Child] = []
        self.log: list[tuple[str, str]] = []
        self._printed = StringIO()
        self.console = Console(file=self._printed, width=200)

    def on_line(self, name: str, line: str) -> None:
        self.log.append((name, line))

    def tell(self, text: str) -> None:
        self._printed.write(f"{text}\n")

    @property
    def ends(self) -> list[str]:
        return [line for line in self.printed.splitlines() if "starting it again" in line]

    @property
    def printed(self) -> str:
        return self._printed.getvalue()

    async def wait_for_ends(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.ends) < count:
                await asyncio.sleep(0.02)

    async def wait_until_ready(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.printed.count("ready after") < count:
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self, *, are_ready: bool) -> AsyncIterator["asyncio.Task[None]"]:
        """The task that keeps them running; cancelled at the end, as by Ctrl-C."""
        async with run_children(self.plans, self.on_line) as self.children:
            if are_ready:
                await announce(self.children, self.console)
            keeping = asyncio.create_task(
                keep_running(self.children, self.plans, self.on_line, self.console, is_quiet=self.is_quiet)
            )
            try:
                yield keeping
                assert not keeping.done(), "nobody keeps them any more"
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)


def draft_plan() -> ServicePlan:
    return plan_service("draft", {"--drafter": "ngram", "--metrics-port": 0}, host=LOOPBACK, port=free_port())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "PAUSES", RetryPolicy(first=FIRST, most_doublings=2))


def test_pauses_grow_to_half_a_minute() -> None:
    assert [PAUSES.longest_pause(count) for count in (0, 1, 2, 5, 100)] == [1, 2, 4, 32, 32]


@pytest.mark.slow
async def test_what_keeps_dying_is_tried_again_after_growing_pauses_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept([draft_plan(), DYING])
    waited: list[float] = []

    async def start(plan: ServicePlan, on_line: OnLine) -> Child:
        """Counts what was waited since the process before this one ended and was told of."""
        waited.append(time.monotonic() - ended.pop())
        return await start_service(plan, on_line)

    ended: list[float] = []
    monkeypatch.setattr(restarts, "start_service", start)
    monkeypatch.setattr(kept.console, "print", lambda text, **_: (ended.append(time.monotonic()), kept.tell(text)))
    async with kept.running(are_ready=False):
        draft = kept.children[0].pid
        await kept.wait_for_ends(5)
        assert kept.children[0].pid == draft and is_running(draft)
    pauses = [FIRST, 2 * FIRST, 4 * FIRST, 4 * FIRST, 4 * FIRST]
    assert kept.ends == [f"the target ended with status 2: starting it again in {pause:g} s" for pause in pauses]
    assert all(seconds >= pause for seconds, pause in zip(waited, pauses, strict=False)) and len(waited) >= 4
    said = [line for name, line in kept.log if name == "target" and "No such option" in line]
    assert len(said) >= 5, "the log goes on under the same name"


async def test_the_end_of_a_log_that_nobody_sees_is_printed() -> None:
    kept = Kept([DYING], is_quiet=True)
    async with kept.running(are_ready=False):
        await kept.wait_for_ends(1)
    assert "No such option: --no-such-flag" in kept.printed


@pytest.mark.slow
async def test_a_system_without_room_for_a_process_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*words: str, **options: object) -> None:
        monkeypatch.undo()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    kept = Kept([DYING])
    async with kept.running(are_ready=False):
        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        await kept.wait_for_ends(3)
    first, second, third = kept.ends
    assert "the target cannot be started: " in second and "temporarily unavailable: starting it again in" in second
    assert "the target ended with status 2:" in first and "the target ended with status 2:" in third


@pytest.mark.few_cases()
@pytest.mark.parametrize(("steady_seconds", "second"), [(PATIENCE, 2 * FIRST), (0.0, FIRST)])
async def test_pauses_begin_anew_once_it_was_ready_for_long(
    monkeypatch: pytest.MonkeyPatch, steady_seconds: float, second: float
) -> None:
    monkeypatch.setattr(restarts, "STEADY_SECONDS", steady_seconds)
    kept = Kept([draft_plan()])
    async with kept.running(are_ready=True):
        for count in (1, 2):
            os.kill(kept.children[0].pid, signal.SIGKILL)
            await kept.wait_for_ends(count)
            await kept.wait_until_ready(count + 1)
            await asyncio.sleep(0.1)
    assert [re.sub(".* again in ", "", line) for line in kept.ends] == [f"{pause:g} s" for pause in (FIRST, second)]
    assert all("the draft ended with status -9:" in line for line in kept.ends)


async def test_what_hangs_at_its_start_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "LEAST_PATIENCE", 1.5)
    kept = Kept([replace(draft_plan(), address=f"{LOOPBACK}:{free_port()}")])  # nobody answers there
    async with kept.running(are_ready=False):
        first = kept.children[0].pid
        os.kill(first, signal.SIGKILL)
        await kept.wait_for_ends(1)
        await kept.wait_for_ends(3)
    assert kept.printed.count("the draft is not ready after 1.5 s: ending it") >= 2
    assert all("the draft ended with status -9: starting it again in" in line for line in kept.ends[:3])
    assert not is_running(kept.children[0].pid)


@pytest.mark.slow
async def test_what_starts_slowly_has_as_much_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "LEAST_PATIENCE", 0.1)  # no service is as quick
    kept = Kept([draft_plan()])
    async with kept.running(are_ready=True):
        assert kept.children[0].start_seconds > 0.1
        os.kill(kept.children[0].pid, signal.SIGKILL)
        await kept.wait_until_ready(2)
    assert "is not ready" not in kept.printed


@pytest.mark.slow
@pytest.mark.parametrize("has_started", [False, True])
async def test_a_stop_during_a_restart_is_quick_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, has_started: bool
) -> None:
    pause = FIRST if has_started else PATIENCE
    monkeypatch.setattr(restarts, "PAUSES", RetryPolicy(first=pause, most_doublings=0))
    kept = Kept([draft_plan()])
    async with kept.running(are_ready=True):
        first = kept.children[0].pid
        os.kill(first, signal.SIGKILL)
        await kept.wait_for_ends(1)
        async with asyncio.timeout(PATIENCE):
            while has_started and kept.children[0].pid == first:
                await asyncio.sleep(0.01)
        last = kept.children[0].pid
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    assert not is_running(first) and not is_running(last)


class Ready:
    """A service that is ready at once."""

    name = "target"

    def __init__(self, address: str) -> None:
        self.address = address

    async def wait_until_ready(self) -> float:
        return 1.25


@pytest.mark.parametrize("address", ["127.0.0.1:50052", "[fd00::1]:50052"])
async def test_an_address_is_printed_as_it_is(address: str) -> None:
    """Brackets are markup to the console."""
    printed = StringIO()
    ready: Any = Ready(address)
    await announce_one(ready, Console(file=printed, width=200))
    assert printed.getvalue() == f"target ready after 1.2 s at {address}\n"
