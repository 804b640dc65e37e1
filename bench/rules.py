"""`python -m bench.rules`: acceptance of a pair by rule and temperature; a table, then one JSON line.

Prompts are the beginnings of held-out files, and seeds are fixed: the same weights give the same figures, except for
near-ties.
"""

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import Acceptance, counts_of, of_case, token_count
from bench.interleaving import turns
from bench.measurement import Measurement
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.report import Section, Table
from specpair.options import Rule

K = 5
TEMPERATURES = (0.0, 0.5, 1.0)
COLUMNS = {
    "rule": "{}",
    "temperature": "{:g}",
    "rate|acceptance rate": "{:.3f}",
    "first|of first tokens": "{:.3f}",
    "tokens_per_round": "{:.2f}",
}


async def measure_rules(arena: Arena) -> Section:
    """The section of the report."""
    cases = [
        Case(peer=Peer.SPECPAIR, temperature=temperature, num_speculative_tokens=K, rule=rule)
        for rule in Rule
        for temperature in TEMPERATURES
    ]
    measurements = await arena.measure(turns(cases, arena.options.prompts, arena.options.repetitions, SEED))
    rows = [
        {"rule": case.rule.value, "temperature": case.temperature, "k": K, **vars(acceptance_of(measurements, case))}
        for case in cases
    ]
    table = Table(title=f"acceptance at K = {K}: {arena.options.label}", columns=COLUMNS, rows=rows)
    return Section(name="rules", tables=[table], figures={"rows": rows})


def acceptance_of(measurements: list[Measurement], case: Case) -> Acceptance:
    outputs = of_case(measurements, case)
    return Acceptance.of(counts_of(outputs), token_count(outputs))


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_rules)]


if __name__ == "__main__":
    run_alone("rules", __doc__, measure_alone)
