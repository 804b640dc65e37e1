"""What a process holds: memory, descriptors, threads, and, where it tells, sequences and blocks."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.line import Line
from tests.faults.instance import Instance

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Of one process at one time."""

    name: str
    life: int
    """Which process of its instance it was: the first, the second, ..."""
    at: float
    """By time.monotonic."""
    resident_mib: float
    descriptors: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a draft or target holds for its callers."""

    sequences: int
    used_blocks: int


def read_process(instance: Instance) -> Reading | None:
    """None if the process is gone."""
    folder = Path("/proc") / str(instance.pid)
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Reading(
            name=instance.name,
            life=instance.start_count,
            at=time.monotonic(),
            resident_mib=int(status["VmRSS"].split()[0]) / 1024,
            descriptors=len(list((folder / "fd").iterdir())),
            threads=int(status["Threads"]),
        )
    except (OSError, KeyError):
        return None


async def read_held(instance: Instance) -> Held:
    """What the service says of itself."""
    info = await instance.info()
    return Held(sequences=info.sequence_count, used_blocks=info.block_count - info.free_block_count)


async def wait_until_empty(instances: Sequence[Instance], within: float) -> dict[str, Held]:
    """What is held by each when nothing is any more, or when the time, in seconds, is over."""
    deadline = time.monotonic() + within
    while True:
        held = {instance.name: await read_held(instance) for instance in instances}
        is_empty = not any(one.sequences or one.used_blocks for one in held.values())
        if is_empty or time.monotonic() > deadline:
            return held
        await asyncio.sleep(0.2)


def growth_per_minute(readings: Sequence[Reading], skipped_share: float = 0.3) -> float | None:
    """MiB of resident memory per minute in one life of a process, by least squares, its beginning left out.

    None where there are too few readings to tell.
    """
    kept = sorted(readings, key=lambda reading: reading.at)[int(len(readings) * skipped_share) :]
    if len(kept) < 5:
        return None
    line = Line.through([reading.at / 60 for reading in kept], [reading.resident_mib for reading in kept])
    return line.slope
