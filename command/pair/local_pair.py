"""The three services as child processes: started together, watched, stopped in order."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from command.pair.child import Child, OnLine
from specpair.rpc.addresses import join_address

LOOPBACK = "127.0.0.1"
GRACE_SECONDS = 5.0
"""Half a minute would be too long to wait at a terminal."""
STYLES = {"draft": "magenta", "target": "cyan", "coordinator": "yellow"}


@dataclass(frozen=True, kw_only=True)
class ServicePlan:
    """A service to start: its arguments of `specpair`, and its address."""

    name: str
    arguments: list[str]
    address: str


def plan_service(name: str, flags: dict[str, object], *, host: str, port: int) -> ServicePlan:
    """The plan of a service. Flags that are None or False are left to the service's defaults; True takes no value."""
    flags = {**flags, "--host": host, "--port": port}
    given = {flag: value for flag, value in flags.items() if value is not None and value is not False}
    words = [word for flag, value in given.items() for word in ((flag,) if value is True else (flag, str(value)))]
    return ServicePlan(name=name, arguments=["serve", name, *words], address=reachable_address(host, port))


def reachable_address(host: str, port: int) -> str:
    """The address to reach a service from here; if it listens everywhere, over the loopback interface."""
    return join_address(LOOPBACK if host in ("0.0.0.0", "::") else host, port)


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


async def start_service(plan: ServicePlan, on_line: OnLine) -> Child:
    return await Child.start(plan.name, plan.address, plan.arguments, on_line)


@asynccontextmanager
async def run_children(
    plans: list[ServicePlan], on_line: OnLine, grace_seconds: float = GRACE_SECONDS
) -> AsyncIterator[list[Child]]:
    """The running services, in the order of the plans. The coordinator is stopped first, so that it can close its
    sequences. What the list holds in the end is stopped, so who starts a service again puts it there.

    `grace_seconds` is how long they have to end; another signal during that time kills them.
    """
    children: list[Child] = []
    try:
        for plan in plans:
            children.append(await start_service(plan, on_line))
        yield children
    finally:
        with killing_on_signals(children):
            await asyncio.gather(*(child.stop(grace_seconds) for child in children if child.name == "coordinator"))
            await asyncio.gather(*(child.stop(grace_seconds) for child in children))


def cancel_on_signals(console: Console) -> None:
    """The first SIGINT or SIGTERM cancels the current task, and says what a second one does."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not task.cancelling():
            console.print("stopping; Ctrl-C again ends everything at once", style="dim")
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


@contextmanager
def killing_on_signals(children: list[Child]) -> Iterator[None]:
    """In this context SIGINT and SIGTERM kill the children at once: the second request to stop is urgent."""

    def kill() -> None:
        for child in children:
            child.kill()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, kill)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def announce(children: list[Child], console: Console) -> None:
    """Prints a line for each service when it is ready."""
    with console.status("loading the models"):
        await asyncio.gather(*(announce_one(child, console) for child in children))


async def announce_one(child: Child, console: Console) -> None:
    """Prints a line when the service is ready."""
    seconds = await child.wait_until_ready()
    console.print(f"[{STYLES[child.name]}]{child.name}[/] ready after {seconds:.1f} s at {escape(child.address)}")


async def unless_dead(children: list[Child], work: Coroutine[Any, Any, object]) -> None:
    """Does the work; raises ServiceEndedError if a child ends before the work is done."""
    working = asyncio.create_task(work)
    deaths = [asyncio.create_task(child.wait_until_dead()) for child in children]
    try:
        done, _ = await asyncio.wait([working, *deaths], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (working, *deaths):
            task.cancel()
        await asyncio.gather(working, *deaths, return_exceptions=True)


def line_printer(console: Console) -> OnLine:
    """Prints the lines of all services, each after its service's name."""

    def print_line(name: str, line: str) -> None:
        # One call: between two, a spinner on the screen would be drawn over the name.
        console.print(Text.assemble((f"{name:>11}", STYLES[name]), f" │ {line}"), soft_wrap=True)

    return print_line


def ignore_line(name: str, line: str) -> None:
    """Prints nothing; the child keeps its last lines for an error message."""
