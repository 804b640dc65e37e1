"""The command line of `bench.apart`, and what it asks for."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.apart.cells import KS, Matrix, quick
from bench.apart.disturbed_models import target_folder
from bench.options import BenchOptions, above_one, positive
from bench.progress import Progress
from bench.prompts import token_prompts
from specpair.options import Rule

LINKS = {"draft": ("draft",), "target": ("target",), "both": ("draft", "target")}
PROMPT_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run."""

    matrix: Matrix
    far: tuple[str, ...]
    """The services that are apart from the coordinator."""
    options: BenchOptions
    progress: Progress
    prompts: list[list[int]]
    json: Path | None
    """The file that gets the figures too."""

    def groups(self, batch_size: int) -> int:
        """Groups of prompts that take turns: one for each prompt, and half as many for a batch."""
        return self.options.prompts if batch_size == 1 else max(1, self.options.prompts // 2)


def read_plan(description: str | None) -> Plan:
    """The plan that the command line describes."""
    arguments = parser_of(description).parse_args()
    is_quick = arguments.quick
    matrix = matrix_of(arguments)
    return Plan(
        matrix=matrix,
        far=LINKS[arguments.link],
        options=BenchOptions(
            target=target_folder(),
            draft=target_folder(),
            label="paced",
            prompts=arguments.prompts or (2 if is_quick else 4),
            prompt_tokens=PROMPT_TOKENS,
            max_tokens=arguments.max_tokens or (40 if is_quick else 96),
            repetitions=arguments.repetitions or (1 if is_quick else 2),
            ks=KS,
            temperatures=matrix.temperatures,
            batch_sizes=matrix.batch_sizes,
            is_quick=is_quick,
            is_saved=not (is_quick or arguments.no_save),
        ),
        progress=Progress(),
        prompts=token_prompts(target_folder(), PROMPT_TOKENS),
        json=arguments.json,
    )


def matrix_of(arguments: argparse.Namespace) -> Matrix:
    """The whole matrix, or the quick one, with what was given instead."""
    matrix = quick(Matrix()) if arguments.quick else Matrix()
    given = {name: getattr(arguments, name) for name in vars(matrix)}
    return replace(
        matrix, **{name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value}
    )


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.apart", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    varied = parser.add_argument_group("what is varied; by default everything")
    default = Matrix()

    def several(flag: str, name: str, text: str, kind: Callable[[str], object], values: tuple[object, ...]) -> None:
        shown = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        varied.add_argument(
            flag, dest=name, type=kind, nargs="+", metavar=flag[2].upper(), help=f"{text} (default {shown})"
        )

    several(
        "--acceptances",
        "acceptances",
        "drafts made for an acceptance",
        one_of(default.acceptances),
        default.acceptances,
    )
    several("--steps", "step_ms", "milliseconds of a step of the draft", float, default.step_ms)
    several("--round-trips", "round_trip_ms", "milliseconds of a round trip", float, default.round_trip_ms)
    several("--temperatures", "temperatures", "0 or 1", one_of(default.temperatures), default.temperatures)
    several("--rules", "rules", "acceptance rules at T = 1", Rule, tuple(rule.value for rule in default.rules))
    several("--batches", "batch_sizes", "numbers of requests at a time", positive, default.batch_sizes)
    parser.add_argument(
        "--verify", dest="verify_ms", type=float, metavar="MS", help="milliseconds of a pass of the target (default 20)"
    )
    parser.add_argument(
        "--gigabits", type=float, metavar="X", help="gigabits that a link carries in a second, each way (default: any)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="X",
        help="imitates the same devices and link X times slower, so that the CPU of this machine matters less",
    )
    parser.add_argument(
        "--link", choices=LINKS, default="draft", help="what is apart from the coordinator (default draft)"
    )
    parser.add_argument("--prompts", type=positive, metavar="N", help="number of held-out prompts (default 4)")
    parser.add_argument("--max-tokens", type=above_one, metavar="N", help="tokens to generate per prompt (default 96)")
    parser.add_argument("--repetitions", type=positive, metavar="N", help="turns per case and prompt (default 2)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a part of the cells, once; the figures are not saved",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--no-save", action="store_true", help="save nothing under bench/results")
    return parser


def one_of(values: tuple[float, ...]) -> Callable[[str], float]:
    """Reads a number; raises ValueError for any but these."""

    def number(text: str) -> float:
        if float(text) not in values:
            raise ValueError
        return float(text)

    return number
