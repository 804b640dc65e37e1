"""`python -m bench.merging`: tokens per round of a draft model, of n-grams, and of both merged; a table, then JSON.

All propose chains of the same lengths. Prompts are the beginnings of held-out files, or questions with
`--pair smollm2`, and seeds are fixed: the same weights give the same figures, except for near-ties. Times are not
compared.
"""

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.interleaving import turns
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.report import Section, Table
from bench.trees import tokens_per_round
from specpair.options import Rule

LENGTHS = (2, 4, 8)
WAYS = ((0.0, Rule.COUPLED), (1.0, Rule.COUPLED), (1.0, Rule.TOKEN), (1.0, Rule.BLOCK))
"""Temperatures and rules; greedy outputs are judged alike under all of them."""
DRAFTS = {"model": ("draft",), "ngram": ("ngram",), "merged": ("draft", "ngram")}
COLUMNS = {
    "temperature": "{:g}",
    "rule": "{}",
    "k|K": "{}",
    "model": "{:.2f}",
    "ngram|n-grams": "{:.2f}",
    "merged": "{:.2f}",
    "ratio|merged / better": "{:.2f}",
}


async def measure_merging(arena: Arena) -> Section:
    """The section of the report."""
    cases = {
        (temperature, rule, length): cases_of(temperature, rule, length)
        for temperature, rule in WAYS
        for length in LENGTHS
    }
    every = [case for own in cases.values() for case in own.values()]
    measurements = await arena.measure(turns(every, arena.options.prompts, arena.options.repetitions, SEED))
    rows: list[dict[str, object]] = []
    for (temperature, rule, length), own in cases.items():
        found = {name: tokens_per_round(measurements, case) for name, case in own.items()}
        ratio = found["merged"] / max(found["model"], found["ngram"])
        rows.append({"temperature": temperature, "rule": rule.value, "k": length, **found, "ratio": ratio})
    table = Table(title=f"tokens per round: {arena.options.label}", columns=COLUMNS, rows=rows)
    return Section(name="merging", tables=[table], figures={"rows": rows})


def cases_of(temperature: float, rule: Rule, length: int) -> dict[str, Case]:
    return {
        name: Case(peer=Peer.SPECPAIR, temperature=temperature, num_speculative_tokens=length, rule=rule, drafts=drafts)
        for name, drafts in DRAFTS.items()
    }


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_merging)]


if __name__ == "__main__":
    run_alone("merging", __doc__, measure_alone)
