"""`python -m bench.trees`: tokens per round of trees and of chains with as many rows; a table, then one JSON line.

Chains are tried with several lengths up to the number of tokens of the trees, trees with several depths. Prompts are
the beginnings of held-out files, or questions with `--pair smollm2`, and seeds are fixed: the same weights give the
same figures, except for near-ties. Times are not compared.
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

TREE_TOKENS = 12
CHAINS = (3, 5, 8, 12)
DEPTHS = (3, 4, 6, 8)
WAYS = ((0.0, Rule.COUPLED), (1.0, Rule.COUPLED), (1.0, Rule.TOKEN), (1.0, Rule.BLOCK))
"""Temperatures and rules; greedy outputs are judged alike under all of them."""
COLUMNS = {
    "temperature": "{:g}",
    "rule": "{}",
    "chain|best chain": "{:.2f}",
    "chain_k|its K": "{}",
    "tree|best tree": "{:.2f}",
    "depth|its depth": "{}",
    "ratio|tree / chain": "{:.2f}",
}


async def measure_trees(arena: Arena) -> Section:
    """The section of the report."""
    cases = [case for temperature, rule in WAYS for case in cases_of(temperature, rule)]
    measurements = await arena.measure(turns(cases, arena.options.prompts, arena.options.repetitions, SEED))
    rows = [row_of(measurements, temperature, rule) for temperature, rule in WAYS]
    table = Table(
        title=f"tokens per round with {TREE_TOKENS} tokens: {arena.options.label}", columns=COLUMNS, rows=rows
    )
    return Section(name="trees", tables=[table], figures={"tree_tokens": TREE_TOKENS, "rows": rows})


def cases_of(temperature: float, rule: Rule) -> list[Case]:
    """The chains, then the trees."""
    lengths = [(length, 0) for length in CHAINS] + [(depth, TREE_TOKENS) for depth in DEPTHS]
    return [
        Case(
            peer=Peer.SPECPAIR,
            temperature=temperature,
            num_speculative_tokens=length,
            num_tree_tokens=tree_tokens,
            rule=rule,
        )
        for length, tree_tokens in lengths
    ]


def row_of(measurements: list[Measurement], temperature: float, rule: Rule) -> dict[str, object]:
    cases = cases_of(temperature, rule)
    found = {case: tokens_per_round(measurements, case) for case in cases}
    chain = max((case for case in cases if not case.num_tree_tokens), key=found.__getitem__)
    tree = max((case for case in cases if case.num_tree_tokens), key=found.__getitem__)
    return {
        "temperature": temperature,
        "rule": rule.value,
        "chain": found[chain],
        "chain_k": chain.num_speculative_tokens,
        "tree": found[tree],
        "depth": tree.num_speculative_tokens,
        "ratio": found[tree] / found[chain],
        "all": [(case.num_speculative_tokens, case.num_tree_tokens, value) for case, value in found.items()],
    }


def tokens_per_round(measurements: list[Measurement], case: Case) -> float:
    outputs = of_case(measurements, case)
    return Acceptance.of(counts_of(outputs), token_count(outputs)).tokens_per_round


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_trees)]


if __name__ == "__main__":
    run_alone("trees", __doc__, measure_alone)
