"""A report of `specpair verify-exactness` for people (tables and a line) and programs (one JSON document)."""

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from specpair.exactness.draws import Prompt
from specpair.exactness.plan import Settings
from specpair.exactness.report import Comparison, Equality, Report, Verdict

_STYLES = {Verdict.SAME: "green", Verdict.NEAR_TIE: "yellow", Verdict.DIFFERENT: "bold red", Verdict.UNTESTED: "dim"}


def print_report(console: Console, report: Report, settings: Settings) -> None:
    """Both tables, acceptance, and the verdict."""
    console.print(_equality_table(report))
    console.print(_comparison_table(report))
    for entry in report.speculated:
        line = f"{entry.rule}: {entry.accepted_token_count} of {entry.draft_token_count} proposed tokens accepted"
        missing = f", {entry.fallback_count} of {entry.round_count} rounds without the draft"
        console.print(f"{line} ({entry.acceptance_rate:.1%}){missing if entry.fallback_count else ''}")
    console.print(f"run with --seed {settings.seed}", style="dim")
    console.print(report.verdict_line, style="bold green" if report.passed else "bold red", soft_wrap=True)


def json_report(report: Report, settings: Settings) -> str:
    """All figures of the tables, unrounded."""
    document = {
        "verdict": "pass" if report.passed else "fail",
        "message": report.verdict_line,
        "seed": settings.seed,
        "alpha": report.alpha,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "detectable_distance": report.detectable_distance,
        "acceptance": [asdict(entry) | {"acceptance_rate": entry.acceptance_rate} for entry in report.speculated],
        "equalities": [asdict(entry) for entry in report.equalities],
        "comparisons": [_document(entry) for entry in report.comparisons],
    }
    return json.dumps(document, indent=2)


def _document(entry: Comparison) -> dict[str, Any]:
    document = asdict(entry)
    del document["test"]
    return document | entry.test._asdict()


def _equality_table(report: Report) -> Table:
    table = Table("must be equal", "K", title="Equal outputs", title_justify="left")
    for name in ("equal", "near-ties", "different", "skipped"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for entry in report.equalities:
        counts = (entry.equal, entry.near_ties, entry.different, entry.skipped)
        table.add_row(
            f"{entry.kind}, {entry.rule}",
            str(entry.num_speculative_tokens),
            *(str(count) if count else "" for count in counts),
            _verdict(entry),
        )
    return table


def _comparison_table(report: Report) -> Table:
    table = Table("rule", "options", "prompt", title="Equal distributions", title_justify="left")
    for name in ("tokens", "draws", "bins", "G", "df", "p", "corrected p", "detectable"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for entry in report.comparisons:
        distance = entry.detectable_distance
        table.add_row(
            entry.rule,
            entry.options,
            _prompt(entry.prompt),
            str(entry.length),
            "{} + {}".format(*entry.draws),
            str(entry.bins),
            f"{entry.test.g:.1f}",
            str(entry.test.df),
            f"{entry.test.p_value:.2g}",
            f"{entry.corrected_p_value:.2g}",
            "-" if distance is None else f"{distance:.3f}",
            _verdict(entry),
        )
    return table


def _verdict(entry: Equality | Comparison) -> str:
    note = f" ({entry.note})" if isinstance(entry, Equality) and entry.note else ""
    return f"[{_STYLES[entry.verdict]}]{entry.verdict}[/]{note}"


def _prompt(prompt: Prompt) -> str:
    text = repr(prompt) if isinstance(prompt, str) else " ".join(map(str, prompt))
    return text if len(text) <= 20 else f"{text[:19]}…"
