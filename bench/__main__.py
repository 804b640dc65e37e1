"""`python -m bench`: the pair against its peers, against theory and against itself; tables, then one JSON line.

One run on one machine. Cases that are compared take turns, so that the noise of a shared machine hits all alike; ratios
are paired by turn and come with a 95% interval. Results are kept in bench/results, with the machine they were measured
on, and speedups are drawn there over the curves of theory. The sections, each of which also runs by itself as
`python -m bench.NAME`:

  comparison   transformers generate and assisted generation, specpair at K = 0, at fixed K and adaptive
  drafters     every drafter, adaptive, against K = 0; the n-gram drafter alone on repetitive prompts
  streams      tokens per second of 16 streams against one
  growth       time of a round against context, K, batch and vocabulary
  tax          time of a round outside of its forward passes
  forwards     single forward passes against the time to read the weights once
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bench.arena import Arena, in_arena
from bench.options import BenchOptions, add_options, read_options
from bench.progress import Progress
from bench.report import Report, Section
from command.failures import CommandError

IN_ARENA = ("comparison", "drafters", "streams", "growth")
"""Sections that share one start of the services."""
ALL = (*IN_ARENA, "tax", "forwards")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ALL, metavar="SECTION", help=f"some of them: {', '.join(ALL)}")
    add_options(parser)
    arguments = parser.parse_args()
    wanted = [name for name in ALL if name in (arguments.only or ALL)]
    options = read_options(arguments)
    report = Report(options)
    try:
        asyncio.run(measure(wanted, options, Progress(), report))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        report.finish()


async def measure(wanted: Sequence[str], options: BenchOptions, progress: Progress, report: Report) -> None:
    """The sections, one after the other. They load torch, for which `--help` need not wait."""
    from bench.drafters import measure_repetitive, without_draft_model
    from bench.forwards import measure_forwards
    from bench.tax import measure_tax

    if shared := [name for name in wanted if name in IN_ARENA]:

        async def work(arena: Arena) -> None:
            for name in shared:
                progress.say(f"[bold]{name}[/]")
                report.add(await section_in_arena(name)(arena))

        await in_arena(options, progress, work, with_transformers="comparison" in shared)
    if "drafters" in wanted:
        progress.say("[bold]n-gram drafter alone[/]")
        report.add(await in_arena(without_draft_model(options), progress, measure_repetitive))
    if "tax" in wanted:
        progress.say("[bold]tax[/]")
        report.add(await measure_tax(options, progress))
    if "forwards" in wanted:
        progress.say("[bold]forwards[/]")
        report.add(measure_forwards(options, progress))


def section_in_arena(name: str) -> Callable[[Arena], Awaitable[Section]]:
    """What measures a section of IN_ARENA."""
    from bench.comparison import compare
    from bench.drafters import measure_drafters
    from bench.growth import measure_growth
    from bench.streams import measure_streams

    measures = {
        "comparison": compare,
        "drafters": measure_drafters,
        "streams": measure_streams,
        "growth": measure_growth,
    }
    return measures[name]


if __name__ == "__main__":
    main()
