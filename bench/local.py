"""The three processes of a pair on this machine, for as long as something is measured."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rich.console import Console

from specpair.cli.bundled import BUNDLED, resolve_model
from specpair.cli.connection import coordinator_at
from specpair.cli.local_pair import LOOPBACK, announce, free_port, ignore_line, plan_service, run_children, unless_dead
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

Result = TypeVar("Result")


def measured_locally(
    measure: Callable[[CoordinatorServiceStub], Awaitable[Result]], target: str = BUNDLED, draft: str = BUNDLED
) -> Result:
    """Starts draft, target and coordinator, measures, stops them."""
    return asyncio.run(_run(measure, {"draft": draft, "target": target}))


async def _run(measure: Callable[[CoordinatorServiceStub], Awaitable[Result]], models: dict[str, str]) -> Result:
    plans = [
        plan_service(name, {"--model": resolve_model(models[name], name)}, host=LOOPBACK, port=free_port())
        for name in ("draft", "target")
    ]
    addresses = {f"--{plan.name}": plan.address for plan in plans}
    plans.append(plan_service("coordinator", dict(addresses), host=LOOPBACK, port=free_port()))
    results: list[Result] = []

    async def connect_and_measure() -> None:
        async with coordinator_at(plans[-1].address) as stub:
            results.append(await measure(stub))

    async with run_children(plans, ignore_line) as children:
        await unless_dead(children, announce(children, Console(stderr=True)))
        await unless_dead(children, connect_and_measure())
    return results[0]
