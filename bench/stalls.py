"""`python -m bench.stalls`: how long running streams stall while a long prompt is read.

A forward pass feeds the rows of running streams and, up to `--max-num-batched-tokens`, tokens of the prompt. With a
larger budget the prompt is read sooner, and a stream waits longer for its next token. The services are started for each
budget; runs with and without speculation take turns.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from bench.case import Case, Peer
from bench.local import with_local_pair
from bench.options import BenchOptions, add_options, positive, read_options
from bench.progress import Progress
from bench.prompts import long_prompt, token_prompts
from bench.report import Report, Section, Table
from bench.specpair_peer import receive, request_for
from command.failures import CommandError

STREAMS = 4
BUDGETS = (64, 128, 256, 512)
LONG_TOKENS = 1500
HEAD_START_SECONDS = 1.0
"""Time in which only the streams run; the quiet gaps are measured in it."""
COLUMNS = {
    "budget": "{}",
    "k|K": "{}",
    "quiet_ms|usual gap ms": "{:.0f}",
    "worst_ms|worst gap ms": "{:.0f}",
    "ratio|x usual": "{:.1f}",
    "long_seconds|s to the first token of the prompt": "{:.2f}",
}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One long prompt during the streams. Times are in seconds."""

    quiet_gap: float
    """Median time between messages of a stream before the prompt came."""
    worst_gap: float
    """The longest gap of any stream while the prompt was read."""
    long_seconds: float
    """From the prompt's request to its first token."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A budget and a K: medians over the turns."""

    budget: int
    k: int
    quiet_ms: float
    worst_ms: float
    ratio: float
    long_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stalls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--budgets",
        type=positive,
        nargs="+",
        default=BUDGETS,
        help="token budgets of a forward pass (default 64 128 256 512)",
    )
    parser.add_argument(
        "--long-tokens", type=positive, default=LONG_TOKENS, help="length of the long prompt in tokens (default 1500)"
    )
    add_options(parser)
    arguments = parser.parse_args()
    options = read_options(arguments)
    ks = arguments.k or (5,)
    report = Report(options)
    try:
        report.add(asyncio.run(measure(options, arguments.budgets, (0, *ks), arguments.long_tokens)))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        report.finish()


async def measure(options: BenchOptions, budgets: Sequence[int], ks: Sequence[int], long_tokens: int) -> Section:
    """The section of the report."""
    progress, rows = Progress(), []
    for budget in budgets:
        progress.say(f"[bold]at most {budget} tokens in a pass[/]")
        flagged = replace(options, service_flags={**options.service_flags, "--max-num-batched-tokens": budget})

        async def work(stub: Any) -> dict[int, list[Turn]]:
            return await turns_of(stub, options, ks, long_tokens)

        rows += [row_of(budget, k, turns) for k, turns in (await with_local_pair(flagged, work)).items()]
    title = f"{STREAMS} streams and a prompt of {long_tokens} tokens, {options.label}"
    return Section(name="stalls", tables=[Table(title=title, columns=COLUMNS, rows=rows)], figures={"rows": rows})


async def turns_of(stub: Any, options: BenchOptions, ks: Sequence[int], long_tokens: int) -> dict[int, list[Turn]]:
    prompts = token_prompts(options.target, options.prompt_tokens, STREAMS)
    text = long_prompt(options.target, long_tokens + options.repetitions * len(ks) + 1)
    turns: dict[int, list[Turn]] = {k: [] for k in ks}
    for repetition in range(-1, options.repetitions):  # the first turn warms up
        for index, k in enumerate(ks):
            start = (repetition + 1) * len(ks) + index  # a different beginning each time, so that no cache has it
            turn = await take_turn(stub, prompts, text[start : start + long_tokens], k)
            if repetition >= 0:
                turns[k].append(turn)
    return turns


async def take_turn(stub: Any, prompts: list[list[int]], long_ids: list[int], k: int) -> Turn:
    """The streams run, then the prompt is sent; after its first token the streams are cancelled."""
    case = Case(peer=Peer.SPECPAIR, temperature=0.0, num_speculative_tokens=k)
    streams = [Running(stub, request_for(case, [*prompt, k], 1500, 0)) for prompt in prompts]
    try:
        await asyncio.gather(*(stream.has_begun.wait() for stream in streams))
        await asyncio.sleep(HEAD_START_SECONDS)
        sent = time.perf_counter()
        done, _ = await receive(stub, request_for(case, long_ids, 1, 0))
        await asyncio.gather(*(stream.next_message() for stream in streams))
    finally:
        await asyncio.gather(*(stream.stop() for stream in streams))
    quiet = [b - a for stream in streams for a, b in pairwise(stream.arrivals) if b < sent]
    beside = [b - a for stream in streams for a, b in pairwise(stream.arrivals) if b >= sent and a <= done.arrivals[0]]
    return Turn(quiet_gap=median(quiet), worst_gap=max(beside), long_seconds=done.arrivals[0] - sent)


class Running:
    """A stream that runs until it is stopped, with the times of its messages, by time.perf_counter."""

    def __init__(self, stub: Any, request: Any):
        self.arrivals: list[float] = []
        self.has_begun = asyncio.Event()
        self._has_news = asyncio.Event()
        self._task = asyncio.create_task(self._read(stub.GenerateTokens(request)))

    async def next_message(self) -> None:
        self._has_news.clear()
        await self._has_news.wait()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, call: Any) -> None:
        try:
            async for response in call:
                if response.tokens:
                    self.arrivals.append(time.perf_counter())
                    self.has_begun.set()
                    self._has_news.set()
        finally:
            call.cancel()


def row_of(budget: int, k: int, turns: Sequence[Turn]) -> Row:
    quiet, worst = (median(getattr(turn, name) for turn in turns) for name in ("quiet_gap", "worst_gap"))
    return Row(
        budget=budget,
        k=k,
        quiet_ms=1000 * quiet,
        worst_ms=1000 * worst,
        ratio=worst / quiet,
        long_seconds=median(turn.long_seconds for turn in turns),
    )


if __name__ == "__main__":
    main()
