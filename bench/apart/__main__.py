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
from collections.abc import Callable

from bench.apart.arithmetic import nearest, synchronous_bound
from bench.apart.cells import KS, TRIED, Cell, Pair, order_of
from bench.apart.disturbed_models import NOISES, draft_folder, target_folder
from bench.apart.paced_pair import PacedModels, PacedPair, with_paced_pair
from bench.apart.plan import Plan, read_plan
from bench.apart.rows import COLUMNS, SYNCHRONOUS, Row, Ways, measured_profile, rows_of
from bench.interleaving import group
from bench.measurement import Measurement, Output, Turn
from bench.report import Report, Section, Table, measured
from bench.specpair_peer import generate
from command.failures import INTERRUPTED, CommandError
from specpair.options import Rule

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
    with plan.progress.over(plan.matrix.cell_count(), "cells") as advance:
        for pair in plan.matrix.pairs():
            rows += await rows_of_pair(plan, pair, advance)
    title = f"verify {plan.matrix.verify_ms:g} ms, {' and '.join(plan.far)} apart from the coordinator"
    noises = [{"acceptance": a, "temperature": t, "noise": noise} for (a, t), noise in NOISES.items()]
    return Section(
        name="apart",
        tables=[Table(title=title, columns=COLUMNS, rows=rows)],
        figures={"rows": rows, "matrix": plan.matrix, "far": plan.far, "noises": noises},
    )


async def rows_of_pair(plan: Plan, pair: Pair, advance: Callable[[str], None]) -> list[Row]:
    """All cells of a pair, which is started once."""
    models = PacedModels(
        target=target_folder(),
        draft=draft_folder(pair.acceptance, pair.temperature),
        verify_ms=pair.verify_ms,
        step_ms=pair.step_ms,
    )

    async def work(paced: PacedPair) -> list[Row]:
        rows: list[Row] = []
        for rule in plan.matrix.rules_at(pair.temperature):
            profile = await acceptance_profile(plan, paced, pair, rule)
            for cell in plan.matrix.cells_of(pair, rule):
                advance(cell.name)
                rows += await rows_of_cell(plan, paced, cell, profile)
        return rows

    return await with_paced_pair(models, plan.far, work)


async def acceptance_profile(plan: Plan, paced: PacedPair, pair: Pair, rule: Rule) -> list[float]:
    """The acceptance at each position, measured in a large batch without a round trip."""
    cell = Cell(pair=pair, rule=rule, round_trip_ms=0.0, batch_size=max(plan.matrix.batch_sizes))
    await paced.set_round_trip(0.0)
    order = order_of([cell.probe()], PROBE_GROUPS, 1)
    return measured_profile({(turn.prompt, turn.repetition): await run(plan, paced, turn) for turn in order})


async def rows_of_cell(plan: Plan, paced: PacedPair, cell: Cell, profile: list[float]) -> list[Row]:
    """All ways in turns."""
    ways = ways_of(cell, profile)
    await paced.set_round_trip(cell.round_trip_ms)
    cases = [case for own in ways.values() for case in own]
    order = order_of(cases, plan.groups(cell.batch_size), plan.options.repetitions)
    return rows_of(cell, ways, [Measurement(turn=turn, output=await run(plan, paced, turn)) for turn in order])


def ways_of(cell: Cell, profile: list[float]) -> Ways:
    """Each way at the few K that are nearest to the best one by calculation."""
    best = synchronous_bound(profile, cell.devices).num_speculative_tokens
    return {SYNCHRONOUS: [cell.synchronous(k) for k in nearest(KS, best, TRIED)]}


async def run(plan: Plan, paced: PacedPair, turn: Turn) -> Output:
    prompts = group(plan.prompts, turn)
    return await generate(paced.stub, turn.case, prompts, plan.options.max_tokens, turn.seed)


if __name__ == "__main__":
    main()
