"""`python -m bench.growth`: how the time of a round grows with context, K, batch and vocabulary.

Each of the four is varied alone, at T = 1, and a line is fitted. Context, K and batch are varied on the run's pair, the
vocabulary on small pairs with random weights. The forward passes of each round are timed separately, in turns with
the requests, which shows the slope of everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.alone import run_alone
from bench.arena import Arena, in_arena
from bench.line import Line
from bench.options import BenchOptions
from bench.progress import Progress
from bench.prompts import long_prompt
from bench.report import Section, Table
from bench.rounds import RoundFigures, Runners, Setting, take_apart
from bench.tax import NOTE, rows_of

CONTEXTS = (256, 512, 1024, 1984)
"""The last leaves room for the output within 2,048."""
KS = (0, 1, 2, 3, 5, 8)
BATCH_SIZES = (1, 2, 4, 8, 16)
VOCABULARIES = (4096, 32000, 128256)
BASE_KS = (0, 5)
"""K for which context and batch are varied."""
TOKENS = 48
REPETITIONS = 5
COLUMNS = {
    "varied": "{}",
    "value": "{:,}",
    "num_speculative_tokens|K": "{}",
    "round_ms|round ms": "{:.2f}",
    "forward_ms|forward passes ms": "{:.2f}",
    "outside_ms|outside ms": "{}",
    "draft_ms|draft ms": "{:.2f}",
    "verify_ms|verify ms": "{:.2f}",
    "network_ms|network and queue ms": "{:.2f}",
    "other_ms|other ms": "{:.2f}",
    "tokens_per_round|tokens a round": "{:.2f}",
}
SLOPE_COLUMNS = {
    "varied": "{}",
    "num_speculative_tokens|K": "{}",
    "unit|slopes are ms per": "{}",
    "round|round": "{:.4f}",
    "forward|forward passes": "{:.4f}",
    "outside|outside": "{:.4f}",
    "reason|what increases": "{}",
}
REASONS = {
    "context": "keys and values that attention reads and, in the drafters and penalties, tokens to look at",
    "K": "a draft step, a row of the target pass, a distribution that travels and is verified",
    "batch": "rows in each pass, and messages, verdicts and texts to handle in Python",
    "vocabulary": "the product with the output weights, and logits to sample from",
}
UNITS = {"context": 1000, "K": 1, "batch": 1, "vocabulary": 1000}


@dataclass(frozen=True, kw_only=True)
class Row(RoundFigures):
    """A round with one thing varied."""

    varied: str
    """context, K, batch or vocabulary."""
    value: int


@dataclass(frozen=True, kw_only=True)
class Slope:
    """How one thing makes rounds longer: milliseconds per `unit`, by least squares."""

    varied: str
    num_speculative_tokens: int | None
    """The K of the rounds; None if K itself is varied."""
    unit: int
    round: float
    forward: float
    outside: float
    reason: str
    """What increases with it."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One thing varied, the rest fixed."""

    varied: str
    values: Sequence[int]
    settings: Sequence[Setting]
    """One for each value."""


def sweeps(options: BenchOptions, max_model_len: int) -> list[Sweep]:
    """What is varied on the pair of the run, up to its longest sequence."""
    contexts = [context for context in CONTEXTS if context + TOKENS <= max_model_len]
    ks, sizes = KS, BATCH_SIZES
    if options.is_quick:
        contexts, ks, sizes = contexts[:2], ks[:3], sizes[:2]
    base = contexts[0]
    return [
        *(
            Sweep(varied="context", values=contexts, settings=[setting(context, k) for context in contexts])
            for k in BASE_KS
        ),
        Sweep(varied="K", values=ks, settings=[setting(base, k) for k in ks]),
        *(Sweep(varied="batch", values=sizes, settings=[setting(base, k, size) for size in sizes]) for k in BASE_KS),
    ]


def setting(context: int, k: int, batch_size: int = 1) -> Setting:
    return Setting(context=context, num_speculative_tokens=k, batch_size=batch_size)


async def measure_growth(arena: Arena) -> Section:
    """The section of the report. For the vocabularies it starts its own pairs."""
    options = arena.options
    own = replace(arena, options=replace(options, max_tokens=TOKENS // 3 if options.is_quick else TOKENS))
    planned = sweeps(options, (await arena.pair_info()).target.max_model_len)
    settings = list(dict.fromkeys(setting for sweep in planned for setting in sweep.settings))
    token_ids = long_prompt(options.target, max(CONTEXTS) + TOKENS)
    repetitions = 1 if options.is_quick else REPETITIONS
    figures = await take_apart(own, Runners.of(options), settings, token_ids, repetitions)
    found = dict(zip(settings, figures, strict=True))
    rows = [
        Row(varied=sweep.varied, value=value, **vars(found[setting]))
        for sweep in planned
        for value, setting in zip(sweep.values, sweep.settings, strict=True)
    ]
    rows += await vocabulary_rows(options, arena.progress)
    slopes = slopes_of(rows)
    tables = [
        Table(title=f"rounds as one thing varies, {options.label}", columns=COLUMNS, rows=rows),
        Table(title="how much longer rounds get", columns=SLOPE_COLUMNS, rows=slopes),
    ]
    return Section(
        name="growth",
        tables=tables,
        figures={"rows": rows, "slopes": slopes},
        notes=[f"for the vocabularies {NOTE}"],
    )


async def vocabulary_rows(options: BenchOptions, progress: Progress) -> list[Row]:
    vocabularies = VOCABULARIES[:2] if options.is_quick else VOCABULARIES
    taxes = await rows_of(vocabularies, options, progress)
    left_out = ("vocab_size", "goal_ms")
    return [
        Row(
            varied="vocabulary",
            value=tax.vocab_size,
            **{name: figure for name, figure in vars(tax).items() if name not in left_out},
        )
        for tax in taxes
    ]


def slopes_of(rows: Sequence[Row]) -> list[Slope]:
    """A slope for each thing that is varied, at each K."""
    slopes: list[Slope] = []
    for varied, unit in UNITS.items():
        own = [row for row in rows if row.varied == varied]
        ks = [None] if varied == "K" else sorted({row.num_speculative_tokens for row in own})
        for k in ks:
            slopes.append(slope_of(varied, k, unit, [row for row in own if k in (None, row.num_speculative_tokens)]))
    return slopes


def slope_of(varied: str, k: int | None, unit: int, rows: Sequence[Row]) -> Slope:
    """By least squares over the rows; if K is varied, over K >= 1, since K = 0 does not use the draft."""
    rows = [row for row in rows if varied != "K" or row.value > 0]
    xs = [row.value / unit for row in rows]
    return Slope(
        varied=varied,
        num_speculative_tokens=k,
        unit=unit,
        round=Line.through(xs, [row.round_ms for row in rows]).slope,
        forward=Line.through(xs, [row.forward_ms for row in rows]).slope,
        outside=Line.through(xs, [row.outside_ms.value for row in rows]).slope,
        reason=REASONS[varied],
    )


async def measure_alone(options: BenchOptions, progress: Progress) -> list[Section]:
    return [await in_arena(options, progress, measure_growth)]


if __name__ == "__main__":
    run_alone("growth", __doc__, measure_alone)
