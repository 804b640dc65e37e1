"""What each piece of adaptive K gains, by simulation: the controller without the piece, against the whole.

120 simulated pairs: all combinations of acceptance, the draft's cost, a row's cost and the load, with random lengths of
outputs, network, contention and unrest; and 12 with the costs of a measured pair, one output at a time. All variants
get the same pairs, texts and seeds.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

from bench.progress import Progress
from bench.report import Table, measured, rich_table, wide_console, write
from bench.simulated_cells import Cell, MakePolicy, cells, rate_of
from bench.simulated_pair import FixedLength
from coordinator.adaptive import (
    LengthController,
    acceptance,
    confidence,
    pass_costs,
    plain_trial,
    probe_budget,
    verify_budget,
    workload,
)
from coordinator.adaptive.draft_costs import DraftCosts
from coordinator.adaptive.load import Load
from coordinator.adaptive.round_costs import RoundCosts
from coordinator.adaptive.round_times import RoundTimes
from specpair.options import Drafter, Rule

FIXED = (0, 1, 2, 3, 5, 8)
STARTS = (0.8, 1.0, 1.3)
"""How slow the machine was when the services measured their passes, by the seed."""
NEVER = 1e18
PIECES: Mapping[str, Sequence[tuple[object, str, Any]]] = {
    "nothing": (),
    "published costs: none": [(LengthController, "publish", lambda *_: None)],
    "passes measured as they run: what was published": [(pass_costs.PassCosts, "add", lambda *_: None)],
    "the shape of the curve as measured: its speed alone": [(pass_costs, "MOST_BEND", 1.0)],
    "a published step of the draft: the mean for a token": [(DraftCosts, "assume", lambda *_: None)],
    "passes that fed a prompt left out: all count": [(workload, "ROWS_MARGIN", 10**9)],
    "levels of load": [(Load, "level", 0)],
    "the share of rows in one pass: all": [(RoundCosts, "together", 1.0)],
    "outputs that wait for the draft of others: none": [(RoundTimes, "waiting", 0.0)],
    "the output's own acceptance: the group's": [(acceptance, "GROUP_WEIGHT", NEVER)],
    "the group's acceptance: a constant": [(acceptance.GroupAcceptance, "add", lambda *_: None)],
    "acceptance by position: one rate": [(acceptance.OutputAcceptance, "rates", lambda self: (self._rate(0),) * 3)],
    "the draft's confidence": [(confidence.Confidence, "limit", lambda *_: 0.0)],
    "what its confidence is worth, learned: as on one pair": [(confidence.Confidence, "add", lambda *_: None)],
    "the margin to begin": [(verify_budget, "ON_MARGIN", 1.0)],
    "probes": [(probe_budget.ProbeBudget, "affords", lambda *_: False)],
    "a share that shrinks while probes fail": [(probe_budget, "SHARE_FACTOR", 1.0)],
    "the trial without proposals": [(plain_trial.PlainTrial, "add", lambda *_, **__: None)],
    "the trial's growing pauses": [(plain_trial, "FIRST_INTERVAL", 128), (plain_trial, "LAST_INTERVAL", 128)],
    "the trial's trimmed means": [(plain_trial, "TRIM", 0.0)],
    "the trial's growing holds: 256 rounds": [(plain_trial, "FIRST_HOLD", 256), (plain_trial, "LAST_HOLD", 256)],
    "the trial's settling": [(plain_trial, "MOST_SETTLING", 0)],
    "the trial's wait after a clear gain": [(plain_trial, "CLEAR_GAIN", NEVER)],
}
"""The piece that is removed (or its replacement), and the patches that do it."""
COLUMNS = {
    "piece": "{}",
    "ratio|to the whole": "{:.3f}",
    "half|±": "{:.3f}",
    "worst|in the worst pair": "{:.3f}",
    "best|to the best fixed K": "{:.3f}",
    "plain|to K = 0": "{:.3f}",
    "kept|the same where that is best": "{:.3f}",
    "share_kept|share of those at 0.97": "{:.2f}",
}


def adaptive(cell: Cell, seed: int) -> MakePolicy:
    """The controller of a coordinator that has just started, with what the services published."""
    controller = LengthController()
    controller.publish(*cell.machine.published(STARTS[seed % len(STARTS)]))
    return lambda: controller.enter(Drafter.MODEL, Rule.BLOCK, 0.0, None)


@contextmanager
def without(piece: str) -> Iterator[None]:
    patches = [patch.object(*change) for change in PIECES[piece]]
    for each in patches:
        each.start()
    yield
    for each in patches:
        each.stop()


def compare(rates: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The ratio of the rates in the same cells: geometric mean, and half of the 95 % interval."""
    logs = [math.log(rate / other) for rate, other in zip(rates, others, strict=True)]
    return math.exp(fmean(logs)), 1.96 * stdev(logs) / math.sqrt(len(logs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="repetitions of each pair (default 2)")
    parser.add_argument("--tokens", type=int, default=6000, help="tokens of each simulation (default 6000)")
    parser.add_argument(
        "--pieces",
        nargs="+",
        choices=PIECES,
        default=list(PIECES),
        metavar="PIECE",
        help="pieces to remove, one at a time",
    )
    parser.add_argument("--no-save", action="store_true", help="do not write bench/results/ablation.json")
    options = parser.parse_args()
    progress, every = Progress(), list(cells())

    def rates(make: Callable[[Cell, int], MakePolicy]) -> list[float]:
        seeds = range(options.seeds)
        return [fmean(rate_of(cell, make(cell, seed), seed, options.tokens) for seed in seeds) for cell in every]

    with progress.over(len(FIXED) + len(options.pieces), "variants") as begin:
        fixed: dict[int, list[float]] = {}
        for k in FIXED:
            begin(f"K = {k}")
            fixed[k] = rates(lambda cell, seed, k=k: lambda: FixedLength(k))
        best = [max(column) for column in zip(*fixed.values(), strict=True)]
        measured_rates: dict[str, list[float]] = {}
        for piece in dict.fromkeys(["nothing", *options.pieces]):
            begin(f"without {piece}")
            with without(piece):
                measured_rates[piece] = rates(adaptive)
    rows = [row_of(name, own, measured_rates["nothing"], best, fixed[0]) for name, own in measured_rates.items()]
    wide_console(is_out=False).print(rich_table(Table(title="without", columns=COLUMNS, rows=rows)))
    result = measured(seeds=options.seeds, tokens=options.tokens, cells=every, fixed=fixed, pieces=rows)
    if not options.no_save:
        write("ablation", result)
    print(json.dumps(result))


def row_of(
    piece: str, rates: Sequence[float], whole: Sequence[float], best: Sequence[float], plain: Sequence[float]
) -> dict[str, Any]:
    """Ratios to the whole controller, to the best fixed K of each pair, and to K = 0 if that is the best."""
    ratio, half = compare(rates, whole)
    off = [own / none for own, none, most in zip(rates, plain, best, strict=True) if none == most]
    return {
        "piece": piece,
        "ratio": ratio,
        "half": half,
        "worst": min(own / other for own, other in zip(rates, whole, strict=True)),
        "best": compare(rates, best)[0],
        "plain": compare(rates, plain)[0],
        "kept": fmean(off),
        "rates": rates,
        "share_kept": sum(ratio >= 0.97 for ratio in off) / len(off),
    }


if __name__ == "__main__":
    main()
