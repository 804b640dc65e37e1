"""The output of `specpair theory`: tables for people, JSON documents for programs."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specpair.theory import acceptance as acc
from specpair.theory import published
from specpair.theory.published import Agreement
from specpair.theory.speedup import (
    SEARCH_LIMIT,
    Acceptance,
    Optimum,
    expected_tokens,
    longest_known,
    operations_factor,
    optimum,
    oracle_tokens,
    oracle_walltime_factor,
    reads_factor,
    walltime_factor,
)

MAX_LISTED_TOKENS = 20
_STYLES = {Agreement.EQUAL: "green", Agreement.WITHIN_ROUNDING: "yellow", Agreement.DIFFERENT: "bold red"}


@dataclass(frozen=True, kw_only=True)
class SpeedupReport:
    """The inputs of `specpair theory speedup`."""

    acceptance: Acceptance
    cost_ratio: float
    operations_ratio: float
    overhead: float
    longest: int

    @property
    def optimum(self) -> Optimum:
        return optimum(self.acceptance, self.cost_ratio, self.overhead)

    def rows(self) -> Iterator[dict[str, float]]:
        """One row for each K that is shown, and one for the best K if that is larger."""
        shown = longest_known(self.acceptance, self.longest)
        for k in sorted({*range(shown + 1), self.optimum.num_speculative_tokens}):
            yield {
                "num_speculative_tokens": k,
                "expected_tokens": expected_tokens(self.acceptance, k),
                "walltime_factor": walltime_factor(self.acceptance, k, self.cost_ratio, self.overhead),
                "operations_factor": operations_factor(self.acceptance, k, self.operations_ratio),
                "reads_factor": reads_factor(self.acceptance, k),
            }

    def oracle(self) -> dict[str, float] | None:
        """None for a profile, which has no acceptance for later positions."""
        if isinstance(self.acceptance, Sequence):
            return None
        return {
            "expected_tokens": oracle_tokens(self.acceptance),
            "walltime_factor": oracle_walltime_factor(self.acceptance, self.cost_ratio, self.overhead),
        }


@dataclass(frozen=True)
class AcceptanceReport:
    """The inputs of `specpair theory acceptance`: two distributions over the named tokens."""

    names: list[str]
    target: list[float]
    draft: list[float]
    lenience: float | None = None

    def figures(self) -> Iterator[tuple[str, float, str]]:
        """Key, value and meaning of each figure."""
        pair = (self.target, self.draft)
        yield "total_variation", acc.total_variation(*pair), "distance between the distributions, D_LK"
        yield "token", acc.token_acceptance(*pair), "token rule (and first token of a block): 1 - D_LK, Theorem 3.5"
        if self.lenience is not None:
            lenient = acc.token_acceptance(*pair, self.lenience)
            yield "token_lenient", lenient, f"token rule with lenience {self.lenience:g}, lossy: appendix A.5"
        yield "coupled", acc.coupled_acceptance(*pair), "coupled rule: shared Gumbel noise, exact"
        yield "coupled_bound", acc.coupled_bound(*pair), "  its lower bound for this distance: (1 - TV) / (1 + TV)"
        yield "greedy_draft", acc.greedy_draft_acceptance(*pair), "greedy draft, sampled target"
        yield "greedy", acc.greedy_acceptance(*pair), "both greedy (temperature 0)"
        yield "independent", acc.independent_acceptance(*pair), "both draw independently and must agree"
        yield "rejection", acc.rejection_acceptance(*pair), "rejection sampling without iteration: appendix A.2"

    def tokens(self) -> Iterator[dict[str, Any]]:
        """What happens to each token."""
        rows = zip(self.names, self.target, self.draft, acc.residual(self.target, self.draft), strict=True)
        for name, p, q, correction in rows:
            accepted = min(1.0, p / q) if q else None
            yield {"token": name, "target": p, "draft": q, "accepted": accepted, "correction": correction}


def print_speedup(console: Console, report: SpeedupReport) -> None:
    """The table over K, then a line on the best K and the bound."""
    table = Table("K", title=_inputs(report), title_justify="left")
    for name in ("tokens per round", "walltime factor", "operations factor", "target reads", ""):
        table.add_column(name, justify="right" if name else "left")
    best = report.optimum
    for row in report.rows():
        is_best = row["num_speculative_tokens"] == best.num_speculative_tokens
        table.add_row(
            str(row["num_speculative_tokens"]),
            *(f"{row[key]:.3f}" for key in list(row)[1:]),
            "best" if is_best else "",
            style="bold green" if is_best else None,
        )
    if oracle := report.oracle():
        table.add_row("oracle", *(f"{value:.3f}" for value in oracle.values()), "", "", "bound", style="cyan")
    console.print(table)
    console.print(_conclusion(report), soft_wrap=True)


def speedup_json(report: SpeedupReport) -> str:
    """Everything that the table holds, unrounded; what is infinite is null."""
    oracle = report.oracle()
    document = {
        "acceptance": report.acceptance,
        "cost_ratio": report.cost_ratio,
        "operations_ratio": report.operations_ratio,
        "overhead": report.overhead,
        "rows": list(report.rows()),
        "optimum": report.optimum._asdict(),
        "oracle": oracle and {key: value if math.isfinite(value) else None for key, value in oracle.items()},
    }
    return json.dumps(document, indent=2)


def print_acceptance(console: Console, report: AcceptanceReport) -> None:
    """What happens to each token, if there are few; then the figures."""
    table = Table("", title="Acceptance", title_justify="left")
    table.add_column("probability", justify="right")
    for _, value, meaning in report.figures():
        table.add_row(meaning, f"{value:.4f}")
    if len(report.names) <= MAX_LISTED_TOKENS:
        console.print(_token_table(report))
    console.print(table)


def acceptance_json(report: AcceptanceReport) -> str:
    """The figures, unrounded."""
    return json.dumps({key: value for key, value, _ in report.figures()}, indent=2)


def table_1() -> Table:
    table = Table("acceptance", "K", title="Leviathan et al. 2023, Table 1 (c = c-hat = 0)", title_justify="left")
    for name in ("operations printed", "ours", "speed printed", "ours"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in published.TABLE_1:
        figures = (row.printed_operations, row.operations, row.printed_speed, row.speed)
        values = [f"{value:.2f}" for value in figures]
        table.add_row(f"{row.acceptance}", str(row.num_speculative_tokens), *values, _agreement(row.agreement))
    return table


def table_4() -> Table:
    table = Table("task", "draft", title="Leviathan et al. 2023, Table 4, T5-XXL", title_justify="left")
    for name in ("T", "K", "acceptance", "c", "EXP printed", "ours", "inputs' rounding", "EMP printed"):
        table.add_column(name, justify="right")
    table.add_column("EXP", no_wrap=True)
    for row in published.TABLE_4:
        inputs = (row.temperature, row.num_speculative_tokens, f"{row.acceptance:.2f}", f"{row.cost_ratio:.2f}")
        expected = (
            f"{row.printed_expected:.1f}",
            f"{row.expected:.3f}",
            "{:.2f} to {:.2f}".format(*row.expected_range),
        )
        verdict = _agreement(row.agreement)
        table.add_row(row.task, row.draft, *map(str, inputs), *expected, f"{row.printed_measured:.1f}", verdict)
    missed = [row for row in published.TABLE_4 if row.agreement is not Agreement.EQUAL]
    table.caption = (
        f"{len(missed)} of {len(published.TABLE_4)} EXP values do not follow from the printed inputs, only from inputs "
        "that round to them, as if the paper had calculated with more digits than it prints."
    )
    table.caption_justify = "left"
    return table


def example_table() -> Table:
    table = Table(
        "case",
        title=f"Shekhar, Speculative Decoding: target {published.EXAMPLE_TARGET_MS} ms, draft "
        f"{published.EXAMPLE_DRAFT_MS} ms, K = {published.EXAMPLE_NUM_SPECULATIVE_TOKENS}",
        title_justify="left",
    )
    answer = f"{published.EXAMPLE_ANSWER_TOKENS} tokens, s"
    for name in ("accepted", "tokens per round", "speedup printed", "ours", answer, "without, s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for case in published.EXAMPLE:
        table.add_row(
            case.name,
            str(case.accepted_count),
            f"{case.tokens_per_round:.0f}",
            f"{case.printed_speedup:.2f}",
            f"{case.speedup:.2f}",
            f"{case.seconds:.1f}",
            f"{case.plain_seconds:.1f}",
            _agreement(case.agreement),
        )
    return table


def _token_table(report: AcceptanceReport) -> Table:
    table = Table("token", title="Token rule", title_justify="left")
    for name in ("target", "draft", "accepted if drafted", "drawn after a rejection"):
        table.add_column(name, justify="right")
    for row in report.tokens():
        accepted = "-" if row["accepted"] is None else f"{row['accepted']:.4f}"
        shares = (f"{row['target']:.4f}", f"{row['draft']:.4f}", accepted, f"{row['correction']:.4f}")
        table.add_row(escape(row["token"]), *shares)
    return table


def _inputs(report: SpeedupReport) -> str:
    known = report.acceptance
    chances = " ".join(f"{chance:g}" for chance in known) if isinstance(known, Sequence) else f"{known:g}"
    parts = [f"acceptance {chances}", f"cost ratio {report.cost_ratio:g}"]
    if report.operations_ratio:
        parts.append(f"operations ratio {report.operations_ratio:g}")
    if report.overhead:
        parts.append(f"overhead {report.overhead:g}")
    return ", ".join(parts)


def _conclusion(report: SpeedupReport) -> str:
    best, factor = report.optimum
    if best == 0:
        line = "no K above 0 pays: the target alone is fastest"
    else:
        line = f"best K = {best}: {factor:.2f} times the speed of the target alone"
    if 0 < best == longest_known(report.acceptance, SEARCH_LIMIT):
        line += "; longer proposals were not considered"
    if (oracle := report.oracle()) is None or not math.isfinite(oracle["walltime_factor"]):
        return line
    return f"{line}; choosing K for each round could add at most {oracle['walltime_factor'] / factor - 1:.0%}"


def _agreement(agreement: Agreement) -> str:
    return f"[{_STYLES[agreement]}]{agreement}[/]"
