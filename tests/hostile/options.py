"""The options of a run."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """One run."""

    seed: int = 1
    messages: int = 100_000
    """Hostile messages to send; proper calls, such as opening and closing sequences, are not counted."""
    at_once: int = 12
    """Number of concurrent cases."""
    only_case: int | None = None
    """Runs only this case, the same as in a run with the same seed."""
    only_kind: str | None = None
    """Makes only cases of this kind."""
    out: Path | None = None
    """File for the result, in addition to standard output."""


def read_options(arguments: list[str] | None = None) -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    default = Options()
    parser.add_argument("--seed", type=int, default=default.seed, help="seed of all cases")
    parser.add_argument("--messages", type=int, default=default.messages, help="number of hostile messages to send")
    parser.add_argument("--at-once", type=int, default=default.at_once, help="number of concurrent cases")
    parser.add_argument("--only-case", type=int, help="run only the case of this number; needs the seed of its run")
    parser.add_argument("--only-kind", help="make only cases of this kind")
    parser.add_argument("--out", type=Path, help="also write the result to this file")
    return Options(**vars(parser.parse_args(arguments)))
