"""`python -m bench.drafters`: whether speculation is ever slower than plain decoding, with each drafter.

Every drafter of the draft service, with adaptive K, at each temperature and batch size, each against a K = 0 of its own
in the turn before or after. A control is measured in the same way: K = 0 against another K = 0, which shows how wide
the noise is. Then the n-gram drafter alone, in a draft service without a model, on repetitive prompts.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.case import Case, Peer
from bench.figures import Acceptance, counts_of, of_case, same_text, share_of_prediction, speeds, token_count
from bench.interleaving import group_count, measure, turns
from bench.measurement import Measurement, Output, Turn
from bench.options import SEED, BenchOptions
from bench.progress import Progress
from bench.prompts import long_prompt
from bench.ratios import Estimate, ratio
from bench.report import Section, Table
from specpair.options import Drafter, Rule
from specpair.rpc.messages import drafter_from_proto

NEVER_SLOWER = 0.97
PERIOD = 24
"""Tokens after which the repetitive prompt repeats."""
REPETITIVE_K = 5
CONTROL = "K = 0 (control)"
SLOWER = "slower"
COLUMNS = {
    "drafter": "{}",
    "num_speculative_tokens|fixed K": "{}",
    "temperature|T": "{:g}",
    "batch_size|batch": "{}",
    "tokens_per_second|tokens/s": "{:.1f}",
    "to_plain|x K=0": "{}",
    "verdict": "{}",
    "drafted_per_round|mean K": "{:.2f}",
    "acceptance_rate|accepted": "{:.2f}",
    "tokens_per_round|tokens a round": "{:.2f}",
    "share_of_prediction|measured / predicted": "{}",
    "same_text|same text": "{:.0%}",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A drafter at one temperature and batch size."""

    drafter: str
    num_speculative_tokens: int | None
    """None if the service decides."""
    temperature: float
    batch_size: int
    tokens_per_second: float
    to_plain: Estimate
    """Speed as a multiple of K = 0."""
    verdict: str
    """Whether the interval lies above 0.97 of K = 0, below it, or on both sides."""
    drafted_per_round: float
    acceptance_rate: float | None
    tokens_per_round: float
    share_of_prediction: Estimate | None
    same_text: float | None
    """At T = 0: share of the outputs that equal those of K = 0."""


async def measure_drafters(arena: Arena) -> Section:
    """The section of the report; the n-gram drafter alone is measured later, in its own pair."""
    options = arena.options
    cases = cases_of(options, await drafters_of(arena))
    measurements = await arena.measure(order_of(cases, options.prompts, options.repetitions))
    measured = [row_of(case, plain_of(case), measurements) for case in cases]
    controls = [row for row in measured if row.drafter == CONTROL]
    rows = [row for row in measured if row.drafter != CONTROL]
    table = Table(title=f"adaptive against K = 0, {options.label}", columns=COLUMNS, rows=measured)
    figures = {"rows": rows, "controls": controls, "means": means(rows), "means of controls": means(controls)}
    return Section(name="drafters", tables=[table], figures=figures, notes=[note_of(rows), note_of(controls)])


def note_of(rows: Sequence["Row"]) -> str:
    """How many of the rows are below 0.97, and how many of them surely."""
    below = sum(row.to_plain.value < NEVER_SLOWER for row in rows)
    surely = sum(row.verdict == SLOWER for row in rows)
    what = "controls, K = 0 on both sides," if all(row.drafter == CONTROL for row in rows) else "settings"
    return f"{below} of {len(rows)} {what} are below {NEVER_SLOWER} of K = 0, {surely} of them surely"


async def drafters_of(arena: Arena) -> list[Drafter]:
    """The drafters of the draft service, or those of them that were asked for."""
    info, wanted = await arena.pair_info(), arena.options.drafters
    found = [drafter_from_proto(number) for number in info.draft.drafters]
    return [drafter for drafter in found if drafter is not None and (not wanted or drafter.value in wanted)]


def cases_of(options: BenchOptions, drafters: Sequence[Drafter]) -> list[Case]:
    """In every block each drafter, adaptive, and a control, which is told from a K = 0 beside it by its rule alone."""
    blocks = [(batch_size, temperature) for batch_size in options.batch_sizes for temperature in options.temperatures]
    return [
        case
        for batch_size, temperature in blocks
        for plain in [Case(peer=Peer.SPECPAIR, temperature=temperature, batch_size=batch_size)]
        for case in [
            *(replace(plain, drafter=drafter) for drafter in drafters),
            replace(plain, num_speculative_tokens=0, rule=Rule.TOKEN),
        ]
    ]


def plain_of(case: Case) -> Case:
    """K = 0 beside the case: a case of its own."""
    return replace(case, num_speculative_tokens=0, rule=Rule.BLOCK)


def order_of(cases: Sequence[Case], prompts: int, repetitions: int) -> list[Turn]:
    """Each case and its K = 0 one after the other on the same prompt; which is first, and which case is next, is
    drawn each time."""
    shuffler = random.Random(SEED)
    order: list[Turn] = []
    for repetition in range(repetitions):
        for block in dict.fromkeys(case.block for case in cases):
            members = [case for case in cases if case.block == block]
            for prompt in range(group_count(prompts, block[1])):
                for case in shuffler.sample(members, len(members)):
                    pair = shuffler.sample((case, plain_of(case)), 2)
                    order += [Turn(case=each, prompt=prompt, repetition=repetition) for each in pair]
    return order


def means(rows: Sequence["Row"]) -> dict[str, float]:
    """The geometric mean of all ratios to K = 0, by batch size."""
    sizes = dict.fromkeys(row.batch_size for row in rows)
    return {str(size): geometric_mean(row.to_plain.value for row in rows if row.batch_size == size) for size in sizes}


def row_of(case: Case, beside: Case, measurements: Sequence[Measurement]) -> Row:
    """The row of a case against the plain one that took turns with it."""
    outputs, plain = of_case(measurements, case), of_case(measurements, beside)
    acceptance = Acceptance.of(counts_of(outputs), token_count(outputs))
    to_plain = ratio(speeds(outputs), speeds(plain))
    return Row(
        drafter=name_of(case),
        num_speculative_tokens=case.num_speculative_tokens,
        temperature=case.temperature,
        batch_size=case.batch_size,
        tokens_per_second=median(speeds(outputs).values()),
        to_plain=to_plain,
        verdict=verdict(to_plain),
        drafted_per_round=acceptance.drafted_per_round,
        acceptance_rate=acceptance.rate,
        tokens_per_round=acceptance.tokens_per_round,
        share_of_prediction=share_of_prediction(outputs, plain),
        same_text=same_text(outputs, plain) if case.temperature == 0 else None,
    )


def name_of(case: Case) -> str:
    if case.drafter is None:
        return CONTROL if case.num_speculative_tokens == 0 else "the service's own"
    return case.drafter.value


def verdict(to_plain: Estimate) -> str:
    """The verdict of an interval on the rule that adaptive is never below 0.97 of K = 0."""
    if to_plain.low >= NEVER_SLOWER:
        return "not slower"
    return SLOWER if to_plain.high < NEVER_SLOWER else "within noise"


async def measure_repetitive(arena: Arena) -> Section:
    """The n-gram drafter, adaptive and at a fixed K, against K = 0; for an arena of `without_draft_model`."""
    options = arena.options
    plain = [
        Case(peer=Peer.SPECPAIR, temperature=temperature, num_speculative_tokens=0)
        for temperature in options.temperatures
    ]
    others = [
        replace(case, drafter=Drafter.NGRAM, num_speculative_tokens=k) for case in plain for k in (REPETITIVE_K, None)
    ]
    prompts = repetitive_prompts(options)

    async def run(turn: Turn) -> Output:
        return await arena.generate(turn, [prompts[turn.prompt]])

    order = turns([*plain, *others], len(prompts), options.repetitions, SEED)
    measurements = await measure(order, run, arena.progress)
    rows = [row_of(case, case.plain(), measurements) for case in others]
    table = Table(title=f"n-gram drafter alone, on repetitive prompts, {options.label}", columns=COLUMNS, rows=rows)
    return Section(name="repetitive", tables=[table], figures={"rows": rows, "period": PERIOD})


def repetitive_prompts(options: BenchOptions) -> list[list[int]]:
    """Held-out text that repeats every few tokens, with the usual number of prompts."""
    text = long_prompt(options.target, options.prompts * PERIOD)
    pieces = [text[start : start + PERIOD] for start in range(0, len(text), PERIOD)]
    return [(piece * (1 + options.prompt_tokens // PERIOD))[: options.prompt_tokens] for piece in pieces]


def without_draft_model(options: BenchOptions) -> BenchOptions:
    """The same run with a draft service that loads no model."""
    return replace(options, draft_flags={"--model": None, "--drafter": Drafter.NGRAM.value})


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    """Every drafter, then the n-gram drafter alone; only those named, if any are."""
    sections = [await in_arena(options, progress, measure_drafters)]
    if not options.drafters:
        sections.append(await in_arena(without_draft_model(options), progress, measure_repetitive))
    return sections


if __name__ == "__main__":
    run_alone("drafters", __doc__, measure_alone)
