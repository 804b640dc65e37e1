"""Checks of structured outputs end in a result that is the schema's own, and leave no process behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coordinator.requests import structure_checks
from coordinator.requests.structure_checks import StructureChecks
from specpair.errors import CapacityExhaustedError, InvalidGrammarError, NotSupportedError
from specpair.options import StructuredOutput, StructureKind
from tests.calling_as import calling_as
from tests.worded_models import TEXTS, worded_tokenizer

ROOT = Path(__file__).parents[4]


def regex(source: str) -> StructuredOutput:
    return StructuredOutput(kind=StructureKind.REGEX, source=source)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The worker processes, in the order in which they were started."""
    found: list[Any] = []
    create = subprocess.Popen

    def note(*command: Any, **options: Any) -> Any:
        found.append(create(*command, **options))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    return found


@pytest.fixture
async def checks(started: list[Any]) -> AsyncIterator[StructureChecks]:
    checks = StructureChecks(worded_tokenizer().to_str(), len(TEXTS), (0,))
    yield checks
    await checks.close()
    assert all(worker.returncode is not None for worker in started), "a process was left behind"


async def test_a_worker_that_was_killed_refuses_nobody(checks: StructureChecks, started: list[Any]) -> None:
    await checks.check(regex("ab"))
    started[0].kill()
    await checks.check(regex("abc"))
    os.kill(started[-1].pid, signal.SIGSTOP)  # killed in the middle of a check
    asked = asyncio.create_task(checks.check(regex("abcd")))
    await asyncio.sleep(0)
    while not checks._under_way:
        await asyncio.sleep(0)
    started[-1].kill()
    await asked


async def test_a_client_that_leaves_while_a_worker_starts_leaves_no_process(
    checks: StructureChecks, started: list[Any]
) -> None:
    asked = asyncio.create_task(checks.check(regex("ab")))
    while not started:
        await asyncio.sleep(0)
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    await checks.check(regex("abc"))
    assert len(started) <= 2


async def test_clients_that_leave_cost_no_worker(checks: StructureChecks, started: list[Any]) -> None:
    await checks.check(regex("ab"))
    for index in range(8):
        asked = asyncio.create_task(checks.check(regex(f"a{{{index + 1}}}")))
        while not checks._under_way:
            await asyncio.sleep(0)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
    await checks.check(regex("abc"))
    assert len(started) <= structure_checks.MOST_WORKERS
    assert all(worker.poll() is None for worker in started)


async def test_one_client_never_has_all_workers(checks: StructureChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    going = asyncio.Event()
    order: list[str] = []

    async def ask(structured: StructuredOutput) -> None:
        order.append(structured.source)
        if structured.source.startswith("a"):
            await going.wait()

    monkeypatch.setattr(checks, "_ask", ask)
    with calling_as("busy"):
        busy = [asyncio.create_task(checks.check(regex(f"a{{{index + 1}}}"))) for index in range(6)]
    while not order:
        await asyncio.sleep(0)
    with calling_as("other"):
        await asyncio.wait_for(checks.check(regex("b")), 60)
    assert order == ["a{1}", "b"]
    going.set()
    await asyncio.gather(*busy)
    assert len(order) == 7


async def test_a_busy_machine_is_no_fault_of_the_schema(
    checks: StructureChecks, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await checks.check(regex("ab"))
    os.kill(started[0].pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(structure_checks, "WAIT_SECONDS", 0.1)
        with pytest.raises(CapacityExhaustedError):
            await checks.check(regex("abc"))
    await checks.check(regex("abc"))


async def test_what_takes_too_much_time_is_found_by_one_worker(checks: StructureChecks, started: list[Any]) -> None:
    parts = " ".join(f'{{"type": "string", "pattern": "(a|b)*{"ab"[i % 2]}(a|b){{{i + 5}}}"}},' for i in range(60))
    asked = StructuredOutput(kind=StructureKind.JSON_SCHEMA, source=f'{{"allOf": [{parts[:-1]}]}}')
    for _ in range(2):
        with pytest.raises(InvalidGrammarError, match="too complex"):
            await checks.check(asked)
    assert len(started) == 1
    await checks.check(regex("ab"))


async def test_a_tokenizer_that_cannot_be_used_is_named_once(started: list[Any]) -> None:
    """One of pieces of words has no bytes of its tokens."""
    checks = StructureChecks('{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}', 1, (0,))
    for _ in range(2):
        with pytest.raises(NotSupportedError, match="tokenizer"):
            await checks.check(regex("ab"))
    await checks.close()
    assert [worker.returncode is not None for worker in started] == [True]


HANDLED = """
import asyncio, ctypes, uvloop
handler = ctypes.CFUNCTYPE(None)(lambda: print("a handler of forks ran", flush=True))
ctypes.CDLL(None).__register_atfork(handler, None, None, None)
from coordinator.requests.structure_checks import StructureChecks
from specpair.options import StructuredOutput, StructureKind
from tests.worded_models import TEXTS, worded_tokenizer

async def main():
    checks = StructureChecks(worded_tokenizer().to_str(), len(TEXTS), (0,))
    await checks.check(StructuredOutput(kind=StructureKind.REGEX, source="ab"))
    await checks.close()
    print("checked")

uvloop.run(main())
"""


@pytest.mark.slow
def test_a_worker_is_started_without_handlers_of_forks() -> None:
    """gRPC has such handlers, and they now and then ended a worker that uvloop started before it began."""
    command = [sys.executable, "-c", HANDLED]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split("\n") == ["checked", ""]
