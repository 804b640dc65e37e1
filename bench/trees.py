"""`python -m bench.trees`: trees against chains with as many rows, per round and in time; tables, then one JSON line.

Chains are tried with several lengths up to the number of tokens of the trees, trees with several depths. Prompts are
the beginnings of held-out files, or questions with `--pair smollm2`, and seeds are fixed: the same weights give the
same tokens per round, except for near-ties. Times are ratios to K = 0, measured in turns; the best of several chains
and the best of several trees are chosen by the same figures. `--temperatures 1` leaves out the greedy outputs, and
`--rules block coupled` the token rule.
"""

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import Acceptance, counts_of, of_case, speeds, token_count
from bench.interleaving import turns
from bench.measurement import Measurement
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.ratios import ratio
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
SPEED_COLUMNS = {
    "temperature": "{:g}",
    "rule": "{}",
    "chain|best chain / K = 0": "{}",
    "chain_k|its K": "{}",
    "tree|best tree / K = 0": "{}",
    "depth|its depth": "{}",
    "ratio|tree / chain": "{}",
}


async def measure_trees(arena: Arena) -> Section:
    """The section of the report."""
    ways = ways_of(arena.options)
    cases = [case for way in ways for case in [*cases_of(*way), plain(way[0])]]
    order = turns(list(dict.fromkeys(cases)), arena.options.prompts, arena.options.repetitions, SEED)
    measurements = await arena.measure(order)
    rows = [row_of(measurements, *way) for way in ways]
    times = [speed_row(measurements, *way) for way in ways]
    label = arena.options.label
    tables = [
        Table(title=f"tokens per round with {TREE_TOKENS} tokens: {label}", columns=COLUMNS, rows=rows),
        Table(title=f"tokens per second with {TREE_TOKENS} tokens: {label}", columns=SPEED_COLUMNS, rows=times),
    ]
    return Section(name="trees", tables=tables, figures={"tree_tokens": TREE_TOKENS, "rows": rows, "times": times})


def ways_of(options: BenchOptions) -> list[tuple[float, Rule]]:
    """Those of WAYS that the options ask for."""
    rules = options.rules or tuple(Rule)
    return [(temperature, rule) for temperature, rule in WAYS if temperature in options.temperatures and rule in rules]


def plain(temperature: float) -> Case:
    """The target alone."""
    return Case(peer=Peer.SPECPAIR, temperature=temperature, num_speculative_tokens=0)


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


def speed_row(measurements: list[Measurement], temperature: float, rule: Rule) -> dict[str, object]:
    """Of the fastest chain and the fastest tree, each as a multiple of the target alone."""
    base = speeds(of_case(measurements, plain(temperature)))
    found = {case: speeds(of_case(measurements, case)) for case in cases_of(temperature, rule)}
    times = {case: ratio(own, base) for case, own in found.items()}
    chain = max((case for case in times if not case.num_tree_tokens), key=lambda case: times[case].value)
    tree = max((case for case in times if case.num_tree_tokens), key=lambda case: times[case].value)
    return {
        "temperature": temperature,
        "rule": rule.value,
        "chain": times[chain],
        "chain_k": chain.num_speculative_tokens,
        "tree": times[tree],
        "depth": tree.num_speculative_tokens,
        "ratio": ratio(found[tree], found[chain]),
    }


def tokens_per_round(measurements: list[Measurement], case: Case) -> float:
    outputs = of_case(measurements, case)
    return Acceptance.of(counts_of(outputs), token_count(outputs)).tokens_per_round


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_trees)]


if __name__ == "__main__":
    run_alone("trees", __doc__, measure_alone)
