"""Streams against a fleet: tokens per second while all run, what the coordinators cost, and what a round waits."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from bench.fleet.layout import Fleet, Proposer
from bench.processes import processor_seconds, resident_mib
from command.connection import coordinator_at
from specpair.client.channel import connect
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sequence_service_pb2 as sequence_pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from specpair.v1.sequence_service_pb2_grpc import SequenceServiceStub

NUM_SPECULATIVE_TOKENS = 4
"""Proposed tokens a round, except where nothing proposes."""
OBSERVED = 16
"""Every how many streams one is asked for the times of its rounds: reports have a cost of their own."""
MOST_TOKENS = 4096
"""A stream goes on until the measurement ends it."""
MICROSECONDS = 1e-3
"""In milliseconds."""


@dataclass
class Load:
    """What the streams received while all of them ran. Times are in seconds, those of rounds in milliseconds."""

    streams: int
    seconds: float = 0.0
    tokens: int = 0
    coordinator_seconds: float = 0.0
    """Processor time of all coordinators."""
    resident_mib: float = 0.0
    """Memory of the coordinators at the end."""
    grown_mib: float = 0.0
    """What it grew by."""
    spread: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Sequences of each draft and each target."""
    added: list[float] = field(default_factory=list[float])
    """Of each observed round: its time without what draft and target worked and queued."""
    hits: float | None = None
    """The share of observed rounds whose proposal was prepared in time; None if nothing worked ahead."""
    rounds: int = 0
    """Rounds of all streams: those of the observed ones, times their share."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def cores(self) -> float:
        """Processors that the coordinators used."""
        return self.coordinator_seconds / self.seconds

    @property
    def added_ms(self) -> float | None:
        return median(self.added) if self.added else None


async def run_load(fleet: Fleet, prompts: Sequence[Sequence[int]], streams: int, settle: float, seconds: float) -> Load:
    """Runs `streams` endless streams, waits `settle` seconds after each has begun, and observes them for `seconds`."""
    async with AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(coordinator_at(address)) for address in fleet.coordinators]
        readers = [Stream(stubs[i % len(stubs)], prompts[i % len(prompts)], i, fleet.proposer) for i in range(streams)]
        tasks = [asyncio.create_task(reader.read()) for reader in readers]
        try:
            await asyncio.gather(*(reader.has_begun.wait() for reader in readers))
            for task in tasks:
                if task.done():  # before anything is measured
                    task.result()
            await asyncio.sleep(settle)
            return await observe(fleet, readers, seconds)
        finally:
            failed = [task.exception() for task in tasks if task.done() and not task.cancelled()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for error in filter(None, failed):
                raise error


async def observe(fleet: Fleet, readers: "list[Stream]", seconds: float) -> Load:
    load = Load(streams=len(readers))
    memory, used, started = memory_of(fleet), processors_of(fleet), time.perf_counter()
    for reader in readers:
        reader.start_counting()
    await asyncio.sleep(seconds)
    load.seconds = time.perf_counter() - started
    load.tokens = sum(reader.tokens for reader in readers)
    observed = [reader for reader in readers if reader.is_observed]
    load.added = [time for reader in observed for time in reader.added()]
    outcomes = [report.ahead for reader in observed for report in reader.rounds if report.ahead]
    load.hits = outcomes.count(pb.AHEAD_OUTCOME_HIT) / len(outcomes) if outcomes else None
    load.rounds = round(sum(len(reader.rounds) for reader in observed) * len(readers) / max(len(observed), 1))
    load.coordinator_seconds = processors_of(fleet) - used
    load.resident_mib = memory_of(fleet)
    load.grown_mib = load.resident_mib - memory
    load.spread = {"drafts": await spread(fleet.drafts), "targets": await spread(fleet.targets)}
    return load


def memory_of(fleet: Fleet) -> float:
    return sum(resident_mib(pid) for pid in fleet.coordinator_pids)


def processors_of(fleet: Fleet) -> float:
    return sum(processor_seconds(pid) for pid in fleet.coordinator_pids)


async def spread(addresses: Sequence[str]) -> list[int]:
    """The open sequences of each service."""
    return [await sequence_count(address) for address in addresses]


async def sequence_count(address: str) -> int:
    channel = connect(address)
    try:
        info = await SequenceServiceStub(channel).GetModelInfo(sequence_pb.GetModelInfoRequest(), timeout=30.0)
        return info.sequence_count
    finally:
        await channel.close()


class Stream:
    """One output that is read as it comes."""

    def __init__(self, stub: CoordinatorServiceStub, prompt: Sequence[int], index: int, proposer: Proposer):
        self.has_begun = asyncio.Event()
        self.is_observed = index % OBSERVED == 0
        self.tokens = 0
        self.rounds: list[pb.RoundReport] = []
        self._is_counting = False
        self._call = stub.GenerateTokens(
            pb.GenerateTokensRequest(
                token_ids=pb.TokenIds(ids=prompt),
                max_tokens=MOST_TOKENS,
                sampling={"temperature": 0.0, "seed": index},
                num_speculative_tokens=0 if proposer is Proposer.NOTHING else NUM_SPECULATIVE_TOKENS,
                work_ahead=pb.WORK_AHEAD_MODE_ON if proposer is Proposer.AHEAD else pb.WORK_AHEAD_MODE_OFF,
                ignore_eos=True,
                include_rounds=self.is_observed,
            )
        )

    def start_counting(self) -> None:
        self._is_counting = True

    async def read(self) -> None:
        """Reads until cancelled. A stream that fails has begun, too."""
        try:
            async for response in self._call:
                if response.tokens:
                    self.has_begun.set()
                if self._is_counting:
                    self.tokens += len(response.tokens)
                    if response.HasField("round"):
                        self.rounds.append(response.round)
        finally:
            self.has_begun.set()

    def added(self) -> list[float]:
        """For each round that followed another: milliseconds that neither draft nor target worked or queued."""
        return [added_ms(before, own) for before, own in pairwise(self.rounds)]


def added_ms(before: pb.RoundReport, own: pb.RoundReport) -> float:
    """A round's time, from the verdict before to its own, less what the services say they took meanwhile. Of a proposal
    that was prepared beside the pass before that is what came after the verdict, if any did."""
    began = answer_us(before.verify)
    drafted = max(min(took_us(own.draft), answer_us(own.draft) - began), 0)
    return (answer_us(own.verify) - began - took_us(own.verify) - drafted) * MICROSECONDS


def took_us(times: pb.CallTimes) -> int:
    """What a service worked and queued; 0 without a call."""
    return times.queue_us + times.compute_us


def answer_us(times: pb.CallTimes) -> int:
    """When the answer was there."""
    return times.start_us + times.elapsed_us
