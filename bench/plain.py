"""`python -m bench.plain`: plain decoding on an imitated target that is apart from its coordinator.

Without a proposal the next call is known before the verdict, so the target goes on to it by itself, and the round trip
passes beside its pass. Its devices are imitated as in `bench.apart`.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.apart.disturbed_models import target_folder
from bench.apart.paced_pair import PacedModels, PacedPair, with_paced_pair
from bench.case import Case, Peer
from bench.measurement import Output
from bench.options import BenchOptions, above_one, positive
from bench.prompts import token_prompts
from bench.report import Report, Section, Table
from bench.specpair_peer import generate

ROUND_TRIPS = (0.0, 2.0, 5.0, 10.0)
PROMPT_TOKENS = 64
COLUMNS = {
    "round_trip_ms|round trip, ms": "{:g}",
    "streams": "{}",
    "round_ms|round, ms": "{:.1f}",
    "to_waiting|of pass + round trip": "{:.2f}",
    "tokens_per_second|tokens/s": "{:.1f}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Streams at one distance."""

    round_trip_ms: float
    streams: int
    round_ms: float
    """From token to token of a stream: the median over the turns of their medians."""
    to_waiting: float
    """That, relative to a pass and a round trip: what a target takes that waits for each call."""
    tokens_per_second: float
    """Of all streams together."""


async def measure(paced: PacedPair, arguments: argparse.Namespace) -> list[Row]:
    """All cells, of which each repetition measures every one."""
    prompts = token_prompts(target_folder(), PROMPT_TOKENS)
    outputs: dict[tuple[float, int], list[Output]] = {}
    for turn in range(1 + arguments.repetitions):
        for round_trip in arguments.round_trips:
            await paced.set_round_trip(round_trip)
            for streams in arguments.streams:
                case = Case(peer=Peer.SPECPAIR, temperature=1.0, num_speculative_tokens=0, batch_size=streams)
                output = await generate(paced.stub, case, prompts[:streams], arguments.max_tokens, 100 * turn)
                if turn:  # the first one reads the prompts
                    outputs.setdefault((round_trip, streams), []).append(output)
    return [row_of(*cell, arguments.verify, found) for cell, found in outputs.items()]


def row_of(round_trip: float, streams: int, verify_ms: float, outputs: Sequence[Output]) -> Row:
    round_ms = 1000 * median(median(output.round_seconds) for output in outputs)
    return Row(
        round_trip_ms=round_trip,
        streams=streams,
        round_ms=round_ms,
        to_waiting=round_ms / (verify_ms + round_trip),
        tokens_per_second=median(output.tokens / output.seconds for output in outputs),
    )


def main() -> None:
    arguments = parser().parse_args()
    folder = target_folder()
    options = BenchOptions(
        target=folder,
        draft=folder,
        label="paced",
        prompts=max(arguments.streams),
        prompt_tokens=PROMPT_TOKENS,
        max_tokens=arguments.max_tokens,
        repetitions=arguments.repetitions,
        temperatures=(1.0,),
        batch_sizes=tuple(arguments.streams),
        is_saved=not arguments.no_save,
    )
    report = Report(options)
    models = PacedModels(target=folder, draft=folder, verify_ms=arguments.verify, step_ms=1.0)
    rows: list[Row] = []

    async def work(paced: PacedPair) -> None:
        rows.extend(await measure(paced, arguments))

    asyncio.run(with_paced_pair(models, ("target",), work))
    title = f"plain decoding, T = 1, passes of {arguments.verify:g} ms"
    table = Table(title=title, columns=COLUMNS, rows=rows)
    figures = {"rows": [asdict(row) for row in rows], "verify_ms": arguments.verify}
    report.add(Section(name="plain", tables=[table], figures=figures))
    report.finish()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench.plain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--verify", type=float, default=20.0, metavar="MS", help="milliseconds of a pass (default 20)")
    made.add_argument(
        "--round-trips", type=float, nargs="+", default=ROUND_TRIPS, metavar="MS", help="default 0 2 5 10"
    )
    made.add_argument("--streams", type=positive, nargs="+", default=(1, 8), metavar="N", help="default 1 8")
    made.add_argument("--max-tokens", type=above_one, default=64, metavar="N", help="tokens of an output (default 64)")
    made.add_argument("--repetitions", type=positive, default=3, metavar="N", help="turns of each cell (default 3)")
    made.add_argument("--no-save", action="store_true", help="save nothing under bench/results")
    return made


if __name__ == "__main__":
    main()
