"""What a run is asked to do."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """One run. Times are in seconds."""

    seed: int = 1
    events: int = 500
    """Faults of processes; those of the ways between them come beside."""
    streams: int = 16
    pair: str = "tiny"
    """tiny or bundled."""
    targets: int = 2
    drafts: int = 2
    cases: int = 24
    """Different requests."""
    max_tokens: int = 160
    mean_pause: float = 4.0
    """Between the faults of one victim."""
    longest_fault: float = 4.0
    """Of stops and of faults of the ways; they take 0.2 s at least."""
    patience: float = 300.0
    """The deadline of requests that are not meant to run out of time."""
    cancels: float = 0.1
    """The share of requests that their clients leave early."""
    no_kills: bool = False
    """Processes are stopped alone, so that their memory can be watched."""
    break_coordinator: bool = False
    """The coordinator is broken as well, and clients ask again for the rest of what they wanted."""
    may_differ: bool = False
    """Targets compute as they do by default, and near-ties may fall otherwise: for measurements."""
    recoveries: int = 0
    """How often the recovery of target and draft is measured before the faults."""
    most_minutes: float = 30.0
    """The run ends by then, with fewer events if need be."""
    out: Path | None = None
    """Where the result is kept beside standard output."""


def read_options(arguments: list[str] | None = None) -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    default = Options()
    parser.add_argument("--seed", type=int, default=default.seed, help="of the faults and of the requests")
    parser.add_argument("--events", type=int, default=default.events, help="kills, stops and restarts")
    parser.add_argument("--streams", type=int, default=default.streams, help="clients at once")
    parser.add_argument("--pair", choices=["tiny", "bundled"], default=default.pair)
    parser.add_argument("--targets", type=int, default=default.targets)
    parser.add_argument("--drafts", type=int, default=default.drafts)
    parser.add_argument("--cases", type=int, default=default.cases, help="different requests")
    parser.add_argument("--max-tokens", type=int, default=default.max_tokens)
    parser.add_argument(
        "--mean-pause", type=float, default=default.mean_pause, help="seconds between a victim's faults"
    )
    parser.add_argument("--longest-fault", type=float, default=default.longest_fault, help="seconds")
    parser.add_argument("--patience", type=float, default=default.patience, help="deadline of most requests, seconds")
    parser.add_argument("--cancels", type=float, default=default.cancels, help="share of requests left early")
    parser.add_argument("--no-kills", action="store_true", help="stop processes only, and watch their memory")
    parser.add_argument("--break-coordinator", action="store_true", help="and have clients resume")
    parser.add_argument("--may-differ", action="store_true", help="targets without --deterministic, to measure times")
    parser.add_argument("--recoveries", type=int, default=default.recoveries, help="times to measure recovery first")
    parser.add_argument("--most-minutes", type=float, default=default.most_minutes)
    parser.add_argument("--out", type=Path, help="file for the result")
    return Options(**vars(parser.parse_args(arguments)))
