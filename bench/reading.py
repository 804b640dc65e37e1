"""`python -m bench.reading`: how long prompts of several lengths take to read, and tokens after them to write.

The target without speculation, one request at a time at T = 0, and with `--llama-server PATH` llama.cpp over the same
weights; all take turns. Every turn has a prompt of its own, of random tokens: specpair keeps the caches of prompts, and
would not read one that it knows.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import of_case, speeds
from bench.interleaving import measure, turns
from bench.llama_peer import cases_of as llama_cases_of
from bench.measurement import Measurement, Output, Turn
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.ratios import Estimate, ratio
from bench.report import Section, Table
from command.failures import CommandError

LENGTHS = (128, 512, 1024, 1900, 4096)
"""Tokens of the prompts, as far as the target takes so many."""
QUICK_LENGTHS = (32, 64)
SPECPAIR = Case(peer=Peer.SPECPAIR, temperature=0.0, num_speculative_tokens=0)
COLUMNS = {
    "prompt_tokens|prompt": "{:,}",
    "case": "{}",
    "first_token_ms|first token ms": "{:.0f}",
    "read_per_second|tokens read/s": "{:.0f}",
    "token_ms|each further ms": "{:.2f}",
    "reading|reading, x llama.cpp": "{}",
    "writing|writing, x llama.cpp": "{}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A length and one that reads it. Times are medians over the turns."""

    prompt_tokens: int
    case: str
    first_token_ms: float
    """Until the first token arrives at the client."""
    read_per_second: float
    """Tokens of the prompt in that time."""
    token_ms: float
    """Of each token after the first."""
    reading: Estimate | None
    """specpair: how many times as fast as the faster llama.cpp the first token is there; None if none is measured."""
    writing: Estimate | None
    """The same of the tokens after it."""


def lengths_of(options: BenchOptions, most: int) -> list[int]:
    """The lengths that leave room for the output in a model of so many tokens."""
    lengths = QUICK_LENGTHS if options.is_quick else LENGTHS
    return [length for length in lengths if length + options.max_tokens <= most]


def cases_of(options: BenchOptions) -> list[Case]:
    """specpair, and llama.cpp with each kind of weights, all without speculation."""
    others = [case for case in llama_cases_of(options, 0.0, 1) if case.num_speculative_tokens == 0]
    return [SPECPAIR, *others]


async def measure_reading(arena: Arena) -> Section:
    """The section of the report."""
    options, target = arena.options, (await arena.pair_info()).target
    lengths, generator = lengths_of(options, target.max_model_len), random.Random(SEED)
    if not lengths:
        raise CommandError(f"the target takes {target.max_model_len} tokens, too few for any of these prompts")

    async def run(turn: Turn) -> Output:
        prompt = [generator.randrange(target.vocab_size) for _ in range(lengths[turn.prompt])]
        return await arena.generate(turn, [prompt])

    order = turns(cases_of(options), len(lengths), options.repetitions, SEED)
    measurements = await measure(order, run, arena.progress)
    rows = [row for place, length in enumerate(lengths) for row in rows_of(options, place, length, measurements)]
    table = Table(title=f"prompts read and tokens written after them, {options.label}", columns=COLUMNS, rows=rows)
    facts = {} if arena.llama is None else {"llama_server": arena.llama.facts}
    return Section(name="reading", tables=[table], figures={**facts, "rows": rows})


def rows_of(options: BenchOptions, place: int, length: int, measurements: Sequence[Measurement]) -> list[Row]:
    """The rows of one length, whose turns have this place among the prompts."""
    own = [one for one in measurements if one.turn.prompt == place]
    outputs = {case: of_case(own, case) for case in cases_of(options)}
    rivals = [case for case in outputs if case.peer is Peer.LLAMA]

    def beside(speeds_of: Mapping[Case, Mapping[tuple[int, int], float]]) -> Estimate | None:
        best = max(rivals, key=lambda case: median(speeds_of[case].values()), default=None)
        return None if best is None else ratio(speeds_of[SPECPAIR], speeds_of[best])

    reading = {
        case: {turn: length / output.first_token_seconds for turn, output in found.items()}
        for case, found in outputs.items()
    }
    writing = {case: speeds(found) for case, found in outputs.items()}
    return [
        Row(
            prompt_tokens=length,
            case=case.name,
            first_token_ms=1000 * median(output.first_token_seconds for output in found.values()),
            read_per_second=median(reading[case].values()),
            token_ms=1000 / median(writing[case].values()),
            reading=beside(reading) if case is SPECPAIR else None,
            writing=beside(writing) if case is SPECPAIR else None,
        )
        for case, found in outputs.items()
    ]


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    longest = max(QUICK_LENGTHS if options.is_quick else LENGTHS)
    plain = replace(options, ks=(), batch_sizes=(1,), has_transformers=False)
    room = [[0] * longest]  # llama.cpp sizes its caches by the prompts
    return [await in_arena(plain, progress, measure_reading, with_peers=True, prompts=room)]


if __name__ == "__main__":
    run_alone("reading", __doc__, measure_alone)
