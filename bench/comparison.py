"""`python -m bench.comparison`: specpair compared with transformers, llama.cpp and vLLM, on one pair.

All cases generate from the same prompts, with the same lengths, weights and types, and take turns. specpair runs in
its three processes and is measured at the client; transformers runs in its own process; llama.cpp, with
`--llama-server PATH`, in one for each kind of weights and each K; vLLM, with `--vllm PYTHON`, as a server for each K.
Speeds exclude the first tokens and so the pass over the prompt, which `bench.reading` measures. Ratios compare speeds
of neighbouring turns on the same prompt; their 95% interval comes from a bootstrap over prompts and repetitions.

Assisted generation runs with each K and with the library's default (up to 20 tokens, stopping where the draft is
unsure), llama.cpp plain, with each K and with up to 16 tokens while its draft is sure, vLLM plain and with each K;
`best` is the fastest of these.
Predictions are Theorem 3.8 of Leviathan et al. with the acceptance and the costs of the same rounds. What a measured
speedup lacks is time outside draft and verification, or a target pass that takes longer with more rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.comparison_rows import Row, points_of, rows_of
from bench.interleaving import group_count, turns
from bench.llama_peer import cases_of as llama_cases_of
from bench.options import SEED, BenchOptions
from bench.partings import partings_of, said
from bench.progress import Progress
from bench.report import Section, Table
from bench.vllm_peer import cases_of as vllm_cases_of
from specpair.theory.points import points_document

SPEED_COLUMNS = {
    "case": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "to_generate|x generate": "{}",
    "to_assisted|x best assisted": "{}",
    "to_plain|x K=0": "{}",
    "predicted|predicted": "{:.2f}",
    "share_of_prediction|measured / predicted": "{}",
    "same_text|same text": "{:.0%}",
}
BEST_COLUMNS = {
    "case": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "to_fixed|x best K": "{}",
    "to_assisted|x best assisted": "{}",
    "to_vllm|x best vLLM": "{}",
}
ROUND_COLUMNS = {
    "case": "{}",
    "drafted_per_round|K": "{:.2f}",
    "acceptance_rate|accepted": "{:.2f}",
    "first_token_acceptance|of first": "{:.2f}",
    "tokens_per_round|tokens": "{:.2f}",
    "cost_ratio|c": "{:.3f}",
    "draft_ms|draft ms": "{:.2f}",
    "verify_ms|verify ms": "{:.2f}",
    "network_ms|network and queue ms": "{:.2f}",
    "other_ms|other ms": "{:.2f}",
    "total_ms|round ms": "{:.2f}",
    "work_share|draft and verify": "{:.0%}",
}


def cases_of(options: BenchOptions) -> list[Case]:
    """The compared cases; assisted generation can only run one prompt at a time."""
    return [
        case
        for batch_size in options.batch_sizes
        for temperature in options.temperatures
        for case in block_of(options, temperature, batch_size)
    ]


def block_of(options: BenchOptions, temperature: float, batch_size: int) -> list[Case]:
    def case(peer: Peer, k: int | None = None) -> Case:
        return Case(peer=peer, temperature=temperature, batch_size=batch_size, num_speculative_tokens=k)

    assisted = [case(Peer.ASSISTED, k) for k in (*options.ks, None)] if batch_size == 1 else []
    static = [case(Peer.GENERATE_STATIC)] if options.has_static_cache else []
    transformers = [case(Peer.GENERATE), *static, *assisted] if options.has_transformers else []
    specpair = [case(Peer.SPECPAIR, k) for k in (0, *options.ks, None)]
    vllm = vllm_cases_of(options, temperature, batch_size)
    return [*transformers, *llama_cases_of(options, temperature, batch_size), *vllm, *specpair]


async def compare(arena: Arena) -> Section:
    """The section of the report."""
    options = arena.options
    if options.llama is None:
        arena.progress.say("llama.cpp is left out: name a llama-server with --llama-server PATH")
    order = turns(cases_of(options), options.prompts, options.repetitions, SEED)
    measurements = await arena.measure(order)
    rows = [row for block in blocks(options) for row in rows_of(block, measurements)]
    partings = await partings_of(arena, measurements)
    facts = process_facts(arena)
    return Section(
        name="comparison",
        tables=[table for block in blocks(options) for table in tables_of(options, block, rows)],
        figures={
            **facts,
            "groups_of_prompts": {size: group_count(options.prompts, size) for size in options.batch_sizes},
            "rows": rows,
            "partings": partings,
            "points": points_document(points_of(rows)),
        },
        plots={
            f"batch-{size}": points_of([row for row in rows if row.batch_size == size]) for size in options.batch_sizes
        },
        notes=[*notes_of(facts), *said(partings, rows)],
    )


def process_facts(arena: Arena) -> dict[str, Any]:
    """What the peers say about themselves."""
    peers = {"transformers_process": arena.transformers, "llama_server": arena.llama, "vllm": arena.vllm}
    return {name: peer.facts for name, peer in peers.items() if peer is not None}


def notes_of(facts: Mapping[str, Any]) -> list[str]:
    """What the figures do not show."""
    is_untimed = facts.get("transformers_process", {}).get("device", "cpu") != "cpu"
    notes = {
        "on a GPU the passes of transformers are not timed separately: its whole rounds are under other": is_untimed,
        "vLLM tells neither what it accepts nor the times of its passes: a message counts as a round": "vllm" in facts,
        "llama.cpp does not tell the times of its passes: its whole rounds are under other": "llama_server" in facts,
    }
    return [note for note, holds in notes.items() if holds]


def blocks(options: BenchOptions) -> list[list[Case]]:
    """The cases that are compared with each other."""
    return [
        block_of(options, temperature, batch_size)
        for batch_size in options.batch_sizes
        for temperature in options.temperatures
    ]


def tables_of(options: BenchOptions, block: list[Case], rows: Sequence[Row]) -> list[Table]:
    temperature, batch_size = block[0].block
    own = [row for row in rows if (row.temperature, row.batch_size) == (temperature, batch_size)]
    title = f"T = {temperature:g}, batch {batch_size}, {options.label}"
    flat = [{**vars(row), **{llama_column(weights): value for weights, value in row.to_llama.items()}} for row in own]
    to_llama = {f"{llama_column(weights)}|x best llama.cpp {weights}": "{}" for weights in own[0].to_llama}
    return [
        Table(title=f"{title}: speed", columns=SPEED_COLUMNS, rows=own),
        Table(title=f"{title}: against the best of each kind", columns={**BEST_COLUMNS, **to_llama}, rows=flat),
        Table(title=f"{title}: parts of a round", columns=ROUND_COLUMNS, rows=own),
    ]


def llama_column(weights: str) -> str:
    return f"to_llama_{weights}"


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, compare, with_peers=True)]


if __name__ == "__main__":
    run_alone("comparison", __doc__, measure_alone)
