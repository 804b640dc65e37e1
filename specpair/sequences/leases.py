"""Closes sequences whose lease has ended, as long as the service runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from specpair.sequences.open_sequences import OpenSequences

SWEEP_SECONDS = 5.0


@asynccontextmanager
async def keeping_leases(sequences: OpenSequences[Any]) -> AsyncIterator[None]:
    """Closes expired sequences in the background while the context is open."""
    sweeper = asyncio.create_task(_sweep(sequences))
    try:
        yield
    finally:
        sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await sweeper


async def _sweep(sequences: OpenSequences[Any]) -> None:
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, sequences.limits.lease_seconds / 4))
        sequences.expire()
