"""`python -m bench.tax`: the time of a round outside the forward passes, through the three processes.

A small pair with random weights generates without speculation and with K = 4, at T = 1, for vocabularies of 4,096,
49,152 and 128,256 tokens. A round is the time from message to message at the client. Its forward passes are timed in
this process with the same runner, in turns with the requests, and subtracted. The rest is RPC, encoding, scheduling,
sampling, verification and Python.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.random_models import random_pair
from bench.report import Section, Table
from bench.rounds import RoundFigures, Runners, Setting, take_apart

VOCABULARIES = (4096, 49152, 128256)
KS = (0, 4)
GOALS_MS = {4096: 2.0, 49152: 2.0, 128256: 2.5}
CONTEXT = 128
TOKENS = 160
REPETITIONS = 8
QUICK_TOKENS = 24
QUICK_REPETITIONS = 2
COLUMNS = {
    "vocab_size|vocabulary": "{:,}",
    "num_speculative_tokens|K": "{}",
    "round_ms|round ms": "{:.2f}",
    "forward_ms|forward passes ms": "{:.2f}",
    "outside_ms|outside ms": "{}",
    "goal_ms|goal ms": "{:.1f}",
    "draft_ms|draft ms": "{:.2f}",
    "verify_ms|verify ms": "{:.2f}",
    "network_ms|network and queue ms": "{:.2f}",
    "other_ms|other ms": "{:.2f}",
    "tokens_per_round|tokens a round": "{:.2f}",
}
NOTE = (
    "the pair has random weights (one layer of width 32): its forward passes cost next to nothing and its text is"
    " noise; its rows reach the limit of sent tokens, as those of the bundled pair do"
)


@dataclass(frozen=True, kw_only=True)
class Row(RoundFigures):
    """A kind of round at one vocabulary."""

    vocab_size: int
    goal_ms: float | None
    """The goal for the time outside the forward passes."""


async def measure_tax(options: BenchOptions, progress: Progress) -> Section:
    """The section of the report; starts a pair for each vocabulary."""
    rows = await rows_of(VOCABULARIES[:1] if options.is_quick else VOCABULARIES, options, progress)
    table = Table(title="a round outside of its forward passes", columns=COLUMNS, rows=rows)
    return Section(name="tax", tables=[table], figures={"rows": rows}, notes=[NOTE])


async def rows_of(vocabularies: Sequence[int], options: BenchOptions, progress: Progress) -> list[Row]:
    """Each K at each vocabulary."""
    repetitions = QUICK_REPETITIONS if options.is_quick else REPETITIONS
    tokens = QUICK_TOKENS if options.is_quick else TOKENS
    rows: list[Row] = []
    for vocab_size in vocabularies:
        token_ids = random_tokens(vocab_size, CONTEXT + tokens)
        with random_pair(vocab_size) as pair:
            own = replace(options, target=str(pair.target), draft=str(pair.draft), max_tokens=tokens)

            async def work(arena: Arena, token_ids: list[int] = token_ids) -> list[RoundFigures]:
                settings = [Setting(context=CONTEXT, num_speculative_tokens=k) for k in KS]
                return await take_apart(arena, Runners.of(arena.options), settings, token_ids, repetitions)

            figures = await in_arena(own, progress, work, prompts=[token_ids])
        rows += [Row(**vars(one), vocab_size=vocab_size, goal_ms=GOALS_MS.get(vocab_size)) for one in figures]
    return rows


def random_tokens(vocab_size: int, count: int) -> list[int]:
    return random.Random(SEED).choices(range(vocab_size), k=count)


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await measure_tax(options, progress)]


if __name__ == "__main__":
    run_alone("tax", __doc__, measure_alone)
