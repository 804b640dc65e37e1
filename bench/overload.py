"""`python -m bench.overload`: four times the load that fits, for some time: accepted and refused requests, and memory.

Clients send the next request as soon as they have an answer, or a moment after a refusal. Every answer is compared with
that of the target alone without load: greedy, on a deterministic target, so that no batch can change a token.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import grpc
import grpc.aio

from bench.line import Line
from bench.local import with_local_pair
from bench.options import SEED, BenchOptions
from bench.processes import descriptor_count, resident_mib
from bench.prompts import token_prompts
from bench.report import save
from command.failures import CommandError
from command.pair.child import Child
from specpair.named_models import BUNDLED, resolve_model
from specpair.v1 import coordinator_service_pb2 as pb

PROMPT_TOKENS = 64
PROMPT_COUNT = 16
FACTOR = 4
PAUSE_SECONDS = 1.0
"""Mean pause of a client after a refusal; clients wait less than they are told to."""
SAMPLE_SECONDS = 2.0
WARM_UP_SHARE = 0.3
"""Share of the time in which memory may still grow: pools fill, code is loaded at its first use."""


@dataclass
class Sample:
    """State of the three processes at one time."""

    seconds: float
    resident_mib: dict[str, float]
    descriptors: dict[str, int]


@dataclass
class Load:
    """The results of the clients. Times are in seconds."""

    finished: int = 0
    wrong: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """Statuses of the requests that failed."""
    refusal_seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the load (default 60)")
    parser.add_argument(
        "--places", type=int, default=8, help="outputs generated at once; as many requests may wait (default 8)"
    )
    parser.add_argument("--max-tokens", type=int, default=24, help="tokens of each request (default 24)")
    parser.add_argument("--no-save", action="store_true", help="save nothing under bench/results")
    arguments = parser.parse_args()
    # A model keeps as many caches as it has places: with few places, memory reaches its maximum after a short time.
    flags: dict[str, object] = {"--deterministic": True, "--max-num-seqs": 2 * arguments.places, "--max-model-len": 256}
    options = BenchOptions(
        target=resolve_model(BUNDLED, "target"),
        draft=resolve_model(BUNDLED, "draft"),
        service_flags=flags,
        max_tokens=arguments.max_tokens,
    )
    try:
        result = asyncio.run(measure(options, arguments.places, arguments.seconds))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    print_result(result)
    if not arguments.no_save:
        save("overload", **result)
    if result["wrong"] or set(result["statuses"]) - {"RESOURCE_EXHAUSTED"}:
        raise SystemExit("error: a request was answered wrongly, or failed for another reason than the load")


async def measure(options: BenchOptions, places: int, seconds: float) -> dict[str, Any]:
    """The figures of one run."""
    children: list[Child] = []

    async def work(stub: Any) -> dict[str, Any]:
        requests = requests_of(options)
        expected = [await tokens_of(stub, request, num_speculative_tokens=0) for request in requests]
        load = Load()
        end = time.monotonic() + seconds
        clients = FACTOR * 2 * places
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(children, load, end))
            for index in range(clients):
                group.create_task(ask(stub, requests, expected, load, end, random.Random(SEED + index)))
        return {"places": places, "queue": places, "clients": clients, "seconds": seconds, **figures(load, seconds)}

    coordinator_flags = {"--max-requests": places, "--max-queued-requests": places}
    return await with_local_pair(options, work, coordinator_flags, children.extend)


def requests_of(options: BenchOptions) -> list[pb.GenerateTokensRequest]:
    prompts = token_prompts(options.target, PROMPT_TOKENS, PROMPT_COUNT)
    return [
        pb.GenerateTokensRequest(
            token_ids={"ids": prompt},
            max_tokens=options.max_tokens,
            ignore_eos=True,
            sampling={"temperature": 0.0, "seed": SEED},
        )
        for prompt in prompts
    ]


async def tokens_of(stub: Any, request: pb.GenerateTokensRequest, **fields: Any) -> list[int]:
    message = pb.GenerateTokensRequest(**fields)
    message.MergeFrom(request)
    return [token.id async for response in stub.GenerateTokens(message) for token in response.tokens]


async def ask(
    stub: Any,
    requests: list[pb.GenerateTokensRequest],
    expected: list[list[int]],
    load: Load,
    end: float,
    chance: random.Random,
) -> None:
    """One client, until the end."""
    while time.monotonic() < end:
        index = chance.randrange(len(requests))
        start = time.monotonic()
        try:
            tokens = await tokens_of(stub, requests[index])
        except grpc.aio.AioRpcError as error:
            load.statuses[error.code().name] += 1
            load.refusal_seconds.append(time.monotonic() - start)
            await asyncio.sleep(2 * PAUSE_SECONDS * chance.random())
            continue
        load.finished += 1
        load.wrong += tokens != expected[index]


async def watch(children: list[Child], load: Load, end: float) -> None:
    """Samples of the three processes, until the end."""
    start = time.monotonic()
    while time.monotonic() < end:
        await asyncio.sleep(SAMPLE_SECONDS)
        load.samples.append(
            Sample(
                seconds=time.monotonic() - start,
                resident_mib={child.name: resident_mib(child.pid) for child in children},
                descriptors={child.name: descriptor_count(child.pid) for child in children},
            )
        )


def figures(load: Load, seconds: float) -> dict[str, Any]:
    """The result to print and save. Memory is evaluated after the warm-up."""
    samples = [sample for sample in load.samples if sample.seconds > WARM_UP_SHARE * seconds]
    refusals = sorted(load.refusal_seconds) or [0.0]
    memory = {
        name: {
            "first_mib": round(samples[0].resident_mib[name], 1),
            "last_mib": round(samples[-1].resident_mib[name], 1),
            "mib_per_minute": round(60 * slope(samples, name), 2),
            "descriptors": [samples[0].descriptors[name], samples[-1].descriptors[name]],
        }
        for name in samples[0].resident_mib
    }
    return {
        "finished": load.finished,
        "wrong": load.wrong,
        "statuses": dict(load.statuses),
        "refusal_ms": {
            "median": round(1000 * median(refusals), 1),
            "p99": round(1000 * refusals[int(0.99 * (len(refusals) - 1))], 1),
            "most": round(1000 * refusals[-1], 1),
        },
        "memory": memory,
    }


def slope(samples: list[Sample], name: str) -> float:
    """MiB per second."""
    return Line.through([s.seconds for s in samples], [s.resident_mib[name] for s in samples]).slope


def print_result(result: dict[str, Any]) -> None:
    print(
        f"{result['clients']} clients on {result['places']} places and a queue of {result['queue']},"
        f" {result['seconds']:g} s: {result['finished']} finished, {result['wrong']} of them wrong;"
        f" others {result['statuses']}; a refusal took {result['refusal_ms']['median']} ms"
        f" (99 %: {result['refusal_ms']['p99']}, most: {result['refusal_ms']['most']})"
    )
    for name, memory in result["memory"].items():
        print(
            f"{name:>11}: {memory['first_mib']} to {memory['last_mib']} MiB, {memory['mib_per_minute']:+} MiB a minute,"
            f" descriptors {memory['descriptors'][0]} to {memory['descriptors'][1]}"
        )


if __name__ == "__main__":
    main()
