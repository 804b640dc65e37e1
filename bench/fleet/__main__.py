"""`python -m bench.fleet`: many drafts and targets behind one coordinator, and what a coordinator carries.

The models are real and small; their passes take a given time, asleep (`--pace`), so that ten processes imitate ten
devices on one machine. *Scaling* runs as many streams for each draft, with more and more drafts and targets.
*Capacity* runs more and more streams on one pair, or on `--drafts` and `--targets`: processor time and memory of the
coordinator, and what a round takes beside the work of draft and target.
"""

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from bench.apart.disturbed_models import draft_folder, target_folder
from bench.fleet.layout import ACCEPTANCE, Fleet, Layout, Proposer, with_fleet
from bench.fleet.load import NUM_SPECULATIVE_TOKENS, Load, run_load
from bench.options import positive
from bench.progress import Progress
from bench.prompts import token_prompts
from bench.report import Table, measured, rich_table, wide_console, write
from command.failures import INTERRUPTED, CommandError
from specpair.errors import SpecpairError

PROMPT_TOKENS = 64
SCALING = ((1, 1, 16), (2, 1, 32), (4, 2, 64))
"""Drafts, targets, streams."""
CAPACITY = (1, 16, 64, 128, 256)
SLOW = Layout(verify="400", step="40")
"""Milliseconds of passes for many streams, so that the processors of this machine do not decide."""
COLUMNS = {
    "layout": "{}",
    "streams": "{}",
    "tokens_per_second|tokens/s": "{:.0f}",
    "ratio|to linear": "{:.2f}",
    "rounds_per_second|rounds/s": "{:.0f}",
    "added_ms|added ms a round": "{:.2f}",
    "hits|prepared in time": "{:.2f}",
    "cores|coordinator's cores": "{:.2f}",
    "ms_per_round|its ms a round": "{:.2f}",
    "resident_mib|its MiB": "{:.0f}",
    "grown_mib|grown": "{:.1f}",
    "spread": "{}",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("scaling", "capacity"), help="one of the two tables")
    parser.add_argument(
        "--streams", type=positive, nargs="+", default=CAPACITY, metavar="N", help="of the capacity table"
    )
    parser.add_argument("--seconds", type=positive, default=20, help="seconds of each observation (default 20)")
    parser.add_argument("--settle", type=positive, default=5, help="seconds before it (default 5)")
    parser.add_argument(
        "--coordinators", type=positive, default=1, metavar="N", help="of the capacity table, over the same pair"
    )
    parser.add_argument(
        "--drafts", type=positive, default=1, metavar="N", help="of the capacity table (default 1); none with a head"
    )
    parser.add_argument("--targets", type=positive, default=1, metavar="N", help="of the capacity table (default 1)")
    parser.add_argument("--verify", default=SLOW.verify, help=f"its passes, as --pace (default {SLOW.verify})")
    parser.add_argument("--step", default=SLOW.step, help=f"its steps, as --pace (default {SLOW.step})")
    parser.add_argument(
        "--proposer",
        type=Proposer,
        choices=tuple(Proposer),
        default=Proposer.DRAFT,
        help=f"of the capacity table: what proposes {NUM_SPECULATIVE_TOKENS} tokens a round: a draft, one that "
        "works ahead, the target's head, or nothing (default draft)",
    )
    parser.add_argument("--label", default="", help="names the results beside those of other runs")
    parser.add_argument("--no-save", action="store_true", help="do not write bench/results/fleet-*.json")
    options = parser.parse_args()
    tables = {"scaling": scaling, "capacity": capacity}
    results: dict[str, Any] = {}
    for name in [options.only] if options.only else tables:
        try:
            rows = asyncio.run(tables[name](options, Progress()))
        except (CommandError, SpecpairError) as error:  # such as a prompt that is not read in time
            raise SystemExit(f"error: {error}") from error
        except KeyboardInterrupt as error:
            raise SystemExit(INTERRUPTED) from error
        wide_console(is_out=False).print(rich_table(Table(title=name, columns=COLUMNS, rows=rows)))
        results[name] = measured(rows=rows, seconds=options.seconds)
        if not options.no_save:
            write("-".join(filter(None, ("fleet", name, options.label))), results[name])
    print(json.dumps(results))


async def scaling(options: argparse.Namespace, progress: Progress) -> list[dict[str, Any]]:
    """As many streams for each draft, with more of everything. Linear: tokens per second by the number of drafts."""
    rows: list[dict[str, Any]] = []
    with progress.over(len(SCALING), "fleets") as advance:
        for drafts, targets, streams in SCALING:
            layout = Layout(draft_count=drafts, target_count=targets)
            advance(layout.name)
            rows += await loads(layout, [streams], options)
    first = rows[0]["tokens_per_second"] / SCALING[0][0]
    return [
        {**row, "ratio": row["tokens_per_second"] / (first * drafts)}
        for row, (drafts, _, _) in zip(rows, SCALING, strict=True)
    ]


async def capacity(options: argparse.Namespace, progress: Progress) -> list[dict[str, Any]]:
    """More and more streams on the same drafts and targets."""
    layout = Layout(
        draft_count=options.drafts,
        target_count=options.targets,
        coordinator_count=options.coordinators,
        verify=options.verify,
        step=options.step,
        proposer=options.proposer,
    )
    with progress.over(len(options.streams), "loads") as advance:
        return await loads(layout, announced(options.streams, advance), options)


def announced(counts: Iterable[int], advance: Any) -> Iterator[int]:
    for count in counts:
        advance(f"{count} streams")
        yield count


async def loads(layout: Layout, counts: Iterable[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each number of streams, all with the same processes."""
    draft_folder(ACCEPTANCE, 0.0)  # made before anything starts
    prompts = token_prompts(target_folder(), PROMPT_TOKENS)
    rows: list[dict[str, Any]] = []

    async def measure(fleet: Fleet) -> None:
        for streams in counts:
            own = distinct(prompts, streams)
            load = await run_load(fleet, own, streams, options.settle, options.seconds)
            rows.append(row_of(layout, load))

    await with_fleet(layout, measure)
    return rows


def distinct(prompts: list[list[int]], count: int) -> list[list[int]]:
    """So many prompts that begin differently: those given, then the same from another place on."""
    chosen: list[list[int]] = []
    for i in range(count):
        own, turn = prompts[i % len(prompts)], i // len(prompts) % len(prompts[i % len(prompts)])
        chosen.append(own[turn:] + own[:turn])
    return chosen


def row_of(layout: Layout, load: Load) -> dict[str, Any]:
    figures = asdict(load)
    del figures["added"]
    return {
        **figures,
        "layout": layout.name,
        "proposer": layout.proposer.value,
        "paces": f"{layout.verify} and {layout.step}",
        "tokens_per_second": load.tokens_per_second,
        "rounds_per_second": load.rounds / load.seconds,
        "added_ms": load.added_ms,
        "cores": load.cores,
        "ms_per_round": 1000 * load.coordinator_seconds / load.rounds if load.rounds else None,
        "spread": " / ".join(" ".join(map(str, counts)) for counts in load.spread.values()),
    }


if __name__ == "__main__":
    main()
