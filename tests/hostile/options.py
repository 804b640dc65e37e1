"""What a run is asked to do."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """One run."""

    seed: int = 1
    messages: int = 100_000
    """Hostile messages to send; what is needed around them, such as opening and closing sequences, is not counted."""
    at_once: int = 12
    """Cases under way at the same time."""
    only_case: int | None = None
    """Runs this case alone, as a run with the same seed made it."""
    only_kind: str | None = None
    """Makes cases of this kind alone."""
    out: Path | None = None
    """Where the result is kept beside standard output."""


def read_options(arguments: list[str] | None = None) -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    default = Options()
    parser.add_argument("--seed", type=int, default=default.seed, help="of all cases")
    parser.add_argument("--messages", type=int, default=default.messages, help="hostile messages to send")
    parser.add_argument("--at-once", type=int, default=default.at_once, help="cases at the same time")
    parser.add_argument("--only-case", type=int, help="number of the one case to run again, with the seed of its run")
    parser.add_argument("--only-kind", help="the one kind of case to make")
    parser.add_argument("--out", type=Path, help="file for the result")
    return Options(**vars(parser.parse_args(arguments)))
