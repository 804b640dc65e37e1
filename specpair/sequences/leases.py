"""Closes the sequences that nobody touches any more, for as long as a service runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from specpair.sequences.open_sequences import OpenSequences

SWEEP_SECONDS = 5.0


@asynccontextmanager
async def keeping_leases(sequences: OpenSequences[Any]) -> AsyncIterator[None]:
    """Looks after the leases beside what is done inside."""
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
