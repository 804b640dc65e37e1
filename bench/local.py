"""The three processes of a pair on this machine, for the time of a measurement."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from rich.console import Console

from bench.options import BenchOptions
from command.connection import coordinator_at
from command.pair.child import Child
from command.pair.local_pair import LOOPBACK, announce, free_port, ignore_line, plan_service, run_children, unless_dead
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

Result = TypeVar("Result")


async def with_local_pair(
    options: BenchOptions,
    measure: Callable[[CoordinatorServiceStub], Awaitable[Result]],
    coordinator_flags: Mapping[str, object] | None = None,
    on_start: Callable[[list[Child]], None] = lambda children: None,
) -> Result:
    """Starts draft, target and coordinator, measures, stops them. Raises CommandError if a service ends.

    `coordinator_flags` are additional flags of `specpair serve coordinator`; `on_start` gets the three processes.
    """
    plans = [
        plan_service(role, {**options.model_flags(role), "--metrics-port": 0}, host=LOOPBACK, port=free_port())
        for role in ("draft", "target")
    ]
    addresses: dict[str, object] = {"--http-port": 0, **{f"--{plan.name}": plan.address for plan in plans}}
    flags = {**addresses, **(coordinator_flags or {})}
    plans.append(plan_service("coordinator", flags, host=LOOPBACK, port=free_port()))
    results: list[Result] = []

    async def connect_and_measure() -> None:
        async with coordinator_at(plans[-1].address) as stub:
            results.append(await measure(stub))

    async with run_children(plans, ignore_line) as children:
        await unless_dead(children, announce(children, Console(stderr=True, highlight=False)))
        on_start(children)
        await unless_dead(children, connect_and_measure())
    return results[0]
