"""Runs one section of the bench alone."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from bench.options import BenchOptions, add_options, read_options
from bench.progress import Progress
from bench.report import Report, Section
from command.failures import INTERRUPTED, CommandError

Measure = Callable[[BenchOptions, Progress], Awaitable[list[Section]]]


def run_alone(name: str, description: str | None, measure: Measure) -> None:
    """`python -m bench.<name>`: reads the command line, measures, reports."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    options = read_options(parser.parse_args())
    report = Report(options)

    async def run() -> None:
        for section in await measure(options, Progress()):
            report.add(section)

    try:
        asyncio.run(run())
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt as error:  # by now everything that was started is stopped
        raise SystemExit(INTERRUPTED) from error
    report.finish()
