"""Services that end are started again, so that running requests go on."""

import asyncio

from rich.console import Console

from command.pair.child import Child, OnLine, ServiceEndedError
from command.pair.local_pair import ServicePlan, announce_one, start_service, unless_dead
from specpair.rpc.retry import RetryPolicy

PAUSES = RetryPolicy(first=1.0, most_doublings=5)
"""Before each start again: 1, 2, 4 ... 32 seconds, so that a service that cannot start leaves the machine to others."""
STEADY_SECONDS = 60.0
"""A service that was ready for so long has recovered: when it ends, the pauses begin anew."""

LEAST_PATIENCE, USUAL_STARTS = 120.0, 5.0
"""A service that is started again has this many seconds to be ready, or this many times what its last start took: the
longer of the two. Then it is taken for hanging."""


async def keep_running(
    children: list[Child], plans: list[ServicePlan], on_line: OnLine, console: Console, *, is_quiet: bool = False
) -> None:
    """Starts each service again whenever it ends, and puts it into the list; goes on until it is cancelled.

    `children` are those of `plans`, in that order, and all are ready. If nobody sees the log (`is_quiet`), its end is
    printed when a service ends.
    """

    async def keep(place: int, plan: ServicePlan) -> None:
        failures, patience = 0, LEAST_PATIENCE
        while True:
            try:
                if failures:
                    children[place] = await start_service(plan, on_line)
                    await _until_ready(children[place], console, patience)
                patience = max(LEAST_PATIENCE, USUAL_STARTS * children[place].start_seconds)
                await unless_dead([children[place]], asyncio.sleep(STEADY_SECONDS))
                failures = 0
                await unless_dead([children[place]], asyncio.Event().wait())
            except ServiceEndedError as end:
                pause = PAUSES.longest_pause(failures)
                failures += 1
                console.print(f"{end.brief}: starting it again in {pause:g} s", markup=False, soft_wrap=True)
                if is_quiet:
                    console.print(end.log, markup=False, soft_wrap=True)
                await asyncio.sleep(pause)

    async with asyncio.TaskGroup() as group:
        for place, plan in enumerate(plans):
            group.create_task(keep(place, plan))


async def _until_ready(child: Child, console: Console, patience: float) -> None:
    """Raises ServiceEndedError if it ends before, and ends it if it is not ready after `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            await unless_dead([child], announce_one(child, console))
    except TimeoutError:
        console.print(f"the {child.name} is not ready after {patience:g} s: ending it", markup=False, soft_wrap=True)
        child.kill()
        await child.wait_until_dead()
