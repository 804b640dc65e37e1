"""A pair whose devices are paced and whose coordinator is apart from the draft, for the time of a measurement."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rich.console import Console

from bench.apart.delay_line import DelayLine, delay_line
from command.connection import coordinator_at
from command.pair.local_pair import (
    LOOPBACK,
    ServicePlan,
    announce,
    free_port,
    ignore_line,
    plan_service,
    run_children,
    unless_dead,
)
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

BYTES_PER_GIGABIT = 1e9 / 8
THREADS = 1
"""Of each model: the passes are small, and both models share the processors with everything else."""


@dataclass(frozen=True, kw_only=True)
class PacedModels:
    """What is served, and how long its passes take."""

    target: str
    draft: str
    verify_ms: float
    step_ms: float
    gigabits: float = 0.0
    """What each link carries in a second, each way; 0 for any amount."""


@dataclass(frozen=True, kw_only=True)
class PacedPair:
    """Ready for requests."""

    stub: CoordinatorServiceStub
    links: tuple[DelayLine, ...]
    """The links that take time."""

    async def set_round_trip(self, milliseconds: float) -> None:
        """From now on each link takes so long there and back."""
        for link in self.links:
            await link.set_round_trip(milliseconds / 1000)


async def with_paced_pair(
    models: PacedModels, far: tuple[str, ...], measure: Callable[[PacedPair], Awaitable[None]]
) -> None:
    """Starts the services, with a delay line to each one named in `far` (draft, target); measures; stops them.

    Raises CommandError if a service ends.
    """
    plans = {role: plan_model(role, models) for role in ("draft", "target")}
    async with AsyncExitStack() as stack:
        lines = {role: await stack.enter_async_context(line_to(plans[role], models.gigabits)) for role in far}
        addresses = {
            f"--{role}": lines[role].address if role in lines else plan.address for role, plan in plans.items()
        }
        coordinator = plan_service("coordinator", {"--http-port": 0, **addresses}, host=LOOPBACK, port=free_port())
        children = await stack.enter_async_context(run_children([*plans.values(), coordinator], ignore_line))
        await unless_dead(children, announce(children, Console(stderr=True, highlight=False)))

        async def connect_and_measure() -> None:
            async with coordinator_at(coordinator.address) as stub:
                await measure(PacedPair(stub=stub, links=tuple(lines.values())))

        await unless_dead(children, connect_and_measure())


def plan_model(role: str, models: PacedModels) -> ServicePlan:
    model, pace = (models.draft, models.step_ms) if role == "draft" else (models.target, models.verify_ms)
    flags = {"--model": model, "--pace": pace, "--threads": THREADS, "--metrics-port": 0}
    return plan_service(role, flags, host=LOOPBACK, port=free_port())


@asynccontextmanager
async def line_to(plan: ServicePlan, gigabits: float) -> AsyncIterator[DelayLine]:
    """A link to a service on this machine."""
    port = int(plan.address.rpartition(":")[2])
    async with delay_line(free_port(), port, gigabits * BYTES_PER_GIGABIT) as line:
        yield line
