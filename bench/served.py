"""Work beside servers that it needs."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from command.pair.child import Child
from command.pair.local_pair import unless_dead

Result = TypeVar("Result")


async def while_alive(servers: Sequence[Child], work: Coroutine[Any, Any, Result]) -> Result:
    """Does the work; raises CommandError if a server ends before it is done."""
    results: list[Result] = []

    async def do() -> None:
        results.append(await work)

    await unless_dead(list(servers), do())
    return results[0]
