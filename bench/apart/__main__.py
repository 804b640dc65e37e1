"""`python -m bench.apart`: what working ahead gains when draft and target are apart, on imitated devices.

The passes of draft and target take a given time, asleep (`--pace`), and the link between coordinator and draft takes a
given round trip; the target is beside the coordinator. The models are real and small: the target is the bundled draft
model, and its drafts are disturbed copies whose acceptance is about 0.85 and 0.6.

In each cell the ways to generate take turns, each at the best K of a short list. Beside them are the bound of Theorem
3.8 with the round trip in it, which no fixed K exceeds that drafts and verifies in turns, and the same for draft and
target on one device, as llama.cpp has them.
"""

import asyncio
import json
from collections.abc import Callable, Iterable

from bench.apart.cells import QUICK_TRIED, TRIED, TRIED_SHORTER, Cell, Pair, ks_to_try, order_of
from bench.apart.disturbed_models import NOISES, draft_folder, target_folder
from bench.apart.hits import COLUMNS as HIT_COLUMNS
from bench.apart.hits import HitRow, hit_row
from bench.apart.hits import K as HIT_K
from bench.apart.paced_pair import PacedModels, PacedPair, with_paced_pair
from bench.apart.plan import Plan, read_plan
from bench.apart.probe import Probe
from bench.apart.rows import COLUMNS, HEADINGS, Row, Ways, rows_of
from bench.interleaving import group
from bench.measurement import Measurement, Output, Turn
from bench.report import Report, Section, Table, measured
from bench.specpair_peer import generate
from command.failures import INTERRUPTED, CommandError
from specpair.options import Rule

HIT_PROMPTS = 2
"""Prompts on which hits are counted, as a multiple of those of a cell."""
PROBE_GROUPS = 2
"""Groups of prompts that show the acceptance of a draft."""


def main() -> None:
    plan = read_plan(__doc__)
    report = Report(plan.options)
    try:
        section = asyncio.run(measure(plan))
    except CommandError as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt as error:  # by now everything that was started is stopped
        raise SystemExit(INTERRUPTED) from error
    report.add(section)
    report.finish()
    if plan.json is not None:
        plan.json.write_text(json.dumps(measured(**section.figures), indent=1) + "\n")


async def measure(plan: Plan) -> Section:
    """The section of the report."""
    rows: list[Row] = []
    hits: list[HitRow] = []
    with plan.progress.over(plan.matrix.cell_count(), "cells") as advance:
        for pair in plan.matrix.pairs():
            own_rows, own_hits = await measure_pair(plan, pair, advance)
            rows += own_rows
            hits += own_hits
    title = (
        f"verify {plan.matrix.scale * plan.matrix.verify_ms:g} ms, {' and '.join(plan.far)} apart from the coordinator"
        + (f", links of {plan.matrix.gigabits / plan.matrix.scale:g} Gb/s" if plan.matrix.gigabits else "")
    )
    noises = [{"acceptance": a, "temperature": t, "noise": noise} for (a, t), noise in NOISES.items()]
    return Section(
        name="apart",
        tables=[Table(title=title, columns=COLUMNS, rows=rows), *hit_tables(hits)],
        figures={"rows": rows, "hits": hits, "matrix": plan.matrix, "far": plan.far, "noises": noises},
        notes=[HEADINGS],
    )


async def measure_pair(plan: Plan, pair: Pair, advance: Callable[[str], None]) -> tuple[list[Row], list[HitRow]]:
    """All cells of a pair, which is started once, and its hit rates."""
    models = PacedModels(
        target=target_folder(),
        draft=draft_folder(pair.acceptance, pair.temperature),
        verify_ms=pair.verify_ms,
        step_ms=pair.step_ms,
        gigabits=plan.matrix.gigabits / plan.matrix.scale,
    )
    rows: list[Row] = []
    hits: list[HitRow] = []

    async def work(paced: PacedPair) -> None:
        for rule in plan.matrix.rules_at(pair.temperature):
            probes = {size: await probe(plan, paced, pair, rule, size) for size in plan.matrix.batch_sizes}
            for cell in plan.matrix.cells_of(pair, rule):
                advance(cell.name)
                rows.extend(await rows_of_cell(plan, paced, cell, probes[cell.batch_size]))
            hits.append(await hits_of_pair(plan, paced, pair, rule))

    await with_paced_pair(models, plan.far, work)
    return rows, hits


async def hits_of_pair(plan: Plan, paced: PacedPair, pair: Pair, rule: Rule) -> HitRow:
    """At the longest round trip, so that no time is missing."""
    cell = Cell(pair=pair, rule=rule, round_trip_ms=plan.matrix.scale * max(plan.matrix.round_trip_ms), batch_size=1)
    await paced.set_round_trip(cell.round_trip_ms)
    prompts = plan.prompts[: HIT_PROMPTS * plan.options.prompts]
    return await hit_row(paced.stub, cell, prompts, plan.options.max_tokens)


def hit_tables(hits: list[HitRow]) -> list[Table]:
    """A table, unless no round worked ahead."""
    rows = [row.shown() for row in hits if any(row.rounds)]
    title = f"share of right proposals ready, K={HIT_K} (rounds), by the accepted tokens of the round before"
    return [Table(title=title, columns=HIT_COLUMNS, rows=rows)] if rows else []


async def probe(plan: Plan, paced: PacedPair, pair: Pair, rule: Rule, batch_size: int) -> Probe:
    """Synchronous rounds without a round trip."""
    cell = Cell(pair=pair, rule=rule, round_trip_ms=0.0, batch_size=batch_size)
    await paced.set_round_trip(0.0)
    measurements = await measured_in_turns(plan, paced, order_of(cell.probes(), PROBE_GROUPS, 1))
    return Probe.of(cell.probes(), measurements)


async def rows_of_cell(plan: Plan, paced: PacedPair, cell: Cell, probe: Probe) -> list[Row]:
    """All ways in turns."""
    tried, shorter = (QUICK_TRIED, 0) if plan.options.is_quick else (TRIED, TRIED_SHORTER)
    ks = ks_to_try(probe.best_k(cell.round_trip_ms), tried, shorter)
    ways: Ways = {way: [cell.case(way, k) for k in own] for way, own in ks.items()}
    await paced.set_round_trip(cell.round_trip_ms)
    cases = [case for own in ways.values() for case in own]
    order = order_of(cases, plan.groups(cell.batch_size), plan.options.repetitions)
    return rows_of(cell, ways, await measured_in_turns(plan, paced, order))


async def measured_in_turns(plan: Plan, paced: PacedPair, order: Iterable[Turn]) -> list[Measurement]:
    return [Measurement(turn=turn, output=await run(plan, paced, turn)) for turn in order]


async def run(plan: Plan, paced: PacedPair, turn: Turn) -> Output:
    prompts = group(plan.prompts, turn)
    return await generate(paced.stub, turn.case, prompts, plan.options.max_tokens, turn.seed)


if __name__ == "__main__":
    main()
