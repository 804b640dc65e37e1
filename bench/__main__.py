"""`python -m bench`: compares the pair with its peers, with theory and with itself; tables, then one JSON line.

One run on one machine. Compared cases take turns, so that the noise of a shared machine affects all alike. Ratios are
paired by turn and have a 95% interval. Results are saved in bench/results with a description of the machine, and
speedups are plotted there over the curves of theory. The sections, which also run alone as `python -m bench.NAME`:

  comparison   transformers' generate and assisted generation; specpair at K = 0, at fixed K and adaptive
  drafters     every drafter, adaptive, against K = 0; the n-gram drafter alone on repetitive prompts
  streams      tokens per second of 16 streams compared with one
  growth       time of a round as context, K, batch and vocabulary grow
  tax          time of a round outside its forward passes
  forwards     single forward passes compared with the time to read the weights once
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bench.arena import Arena, in_arena
from bench.options import BenchOptions, add_options, read_options
from bench.progress import Progress
from bench.report import Report, Section
from command.failures import INTERRUPTED, CommandError

IN_ARENA = ("comparison", "drafters", "streams", "growth")
"""Sections that share one start of the services."""
ALL = (*IN_ARENA, "tax", "forwards")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=ALL, metavar="SECTION", help=f"run only these sections: {', '.join(ALL)}"
    )
    add_options(parser)
    arguments = parser.parse_args()
    wanted = [name for name in ALL if name in (arguments.only or ALL)]
    options = read_options(arguments)
    report = Report(options)
    try:
        asyncio.run(measure(wanted, options, Progress(), report))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt as error:  # by now everything that was started is stopped
        raise SystemExit(INTERRUPTED) from error
    finally:
        report.finish()


async def measure(wanted: Sequence[str], options: BenchOptions, progress: Progress, report: Report) -> None:
    """The sections, one after the other. Imported here: they load torch, which `--help` does not need."""
    from bench.drafters import measure_repetitive, without_draft_model
    from bench.forwards import measure_forwards
    from bench.tax import measure_tax

    if shared := [name for name in wanted if name in IN_ARENA]:

        async def work(arena: Arena) -> None:
            for name in shared:
                progress.say(f"[bold]{name}[/]")
                report.add(await section_in_arena(name)(arena))

        await in_arena(options, progress, work, with_peers="comparison" in shared)
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
    """The function that measures a section of IN_ARENA."""
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
