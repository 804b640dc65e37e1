"""The options of a run."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from specpair.options import FROM_TEXT
from tests.faults.pairs import HEADS, OWN_DRAFTS


@dataclass(frozen=True, kw_only=True)
class Options:
    """One run. Times are in seconds."""

    seed: int = 1
    events: int = 500
    """Faults of processes; faults of the connections between them are additional."""
    streams: int = 16
    pair: str = "tiny"
    """tiny or bundled."""
    targets: int = 2
    drafts: int = 2
    cases: int = 24
    """Different requests."""
    max_tokens: int = 160
    mean_pause: float = 4.0
    """Mean pause between two faults of one process or connection."""
    longest_fault: float = 4.0
    """Longest stop of a process or fault of a connection; the shortest takes 0.2 s."""
    patience: float = 300.0
    """The deadline of requests that should not reach it."""
    cancels: float = 0.1
    """The share of requests that clients cancel early."""
    no_kills: bool = False
    """Processes are only stopped, never killed, so that their memory can be measured."""
    break_coordinator: bool = False
    """The coordinator has faults as well, and clients resume their requests."""
    may_differ: bool = False
    """Targets run without --deterministic, so near-ties may be decided differently: for measurements."""
    work_ahead: str = "auto"
    """Whether drafts prepare proposals while targets verify: auto, on or off."""
    trees: int = 0
    """Tokens of the trees that are proposed; 0 for chains. With trees, and with the compiled head of `eagle`, targets
    have weights of 8 bits, which gives rows bits of their own: --deterministic runs neither."""
    head: str | None = None
    """The drafter in the target that every request is for; None for the draft service's. With it no draft is asked."""
    drafter: str | None = None
    """The drafter in the coordinator that every request is for, which needs no draft service."""
    merge: str = "none"
    """`tree`: each draft is one of its own, and their chains are merged. Targets as with trees."""
    own_draft: str = "none"
    """What guesses the tokens of the draft model: ngram, prompt-lookup, or `model` for a second model."""
    structured: bool = False
    """Every output has to fit a JSON Schema. Takes the bundled pair: tokens need texts."""
    recoveries: int = 0
    """Number of measurements of target and draft recovery before the faults."""
    most_minutes: float = 30.0
    """Time limit; the run then ends with fewer events."""
    out: Path | None = None
    """File for the result, in addition to standard output."""


def read_options(arguments: list[str] | None = None) -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    default = Options()
    parser.add_argument("--seed", type=int, default=default.seed, help="seed of faults and requests")
    parser.add_argument("--events", type=int, default=default.events, help="number of kills, stops and restarts")
    parser.add_argument("--streams", type=int, default=default.streams, help="number of concurrent clients")
    parser.add_argument("--pair", choices=["tiny", "bundled"], default=default.pair)
    parser.add_argument("--targets", type=int, default=default.targets)
    parser.add_argument("--drafts", type=int, default=default.drafts)
    parser.add_argument("--cases", type=int, default=default.cases, help="number of different requests")
    parser.add_argument("--max-tokens", type=int, default=default.max_tokens)
    parser.add_argument(
        "--mean-pause", type=float, default=default.mean_pause, help="mean seconds between faults of one process"
    )
    parser.add_argument("--longest-fault", type=float, default=default.longest_fault, help="longest fault, in seconds")
    parser.add_argument("--patience", type=float, default=default.patience, help="deadline of most requests, seconds")
    parser.add_argument("--cancels", type=float, default=default.cancels, help="share of requests that clients cancel")
    parser.add_argument("--no-kills", action="store_true", help="only stop processes, and measure their memory")
    parser.add_argument("--break-coordinator", action="store_true", help="break the coordinator too; clients resume")
    parser.add_argument("--may-differ", action="store_true", help="targets without --deterministic, to measure times")
    parser.add_argument("--work-ahead", choices=["auto", "on", "off"], default=default.work_ahead)
    parser.add_argument("--trees", type=int, default=default.trees, help="tokens of the proposed trees; 0 for chains")
    parser.add_argument("--head", choices=sorted(HEADS), help="requests are for this drafter in the target")
    parser.add_argument("--drafter", choices=sorted(FROM_TEXT), help="requests are for this one in the coordinator")
    parser.add_argument("--merge", choices=["tree", "none"], default=default.merge, help="of the drafts' chains")
    parser.add_argument("--own-draft", choices=OWN_DRAFTS, default=default.own_draft, help="of the draft model")
    parser.add_argument("--structured", action="store_true", help="outputs of a JSON Schema, of the bundled pair")
    parser.add_argument("--recoveries", type=int, default=default.recoveries, help="recovery measurements first")
    parser.add_argument("--most-minutes", type=float, default=default.most_minutes)
    parser.add_argument("--out", type=Path, help="also write the result to this file")
    return Options(**vars(parser.parse_args(arguments)))
