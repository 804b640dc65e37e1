"""Results for people (tables), then for programs (one JSON line, and a file for each section)."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from bench.machine import describe_machine
from bench.options import BenchOptions
from bench.plots import draw
from specpair.theory.points import Point

RESULTS = Path(__file__).parent / "results"
WIDTH = 160
BUSY_SHARE = 0.4
"""Share of the cores; from this load on, other processes disturb the run."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows to print; None is shown as a dash, and a column with only None is left out."""

    title: str
    columns: Mapping[str, str]
    """The figure of each column, with its format; `figure|heading` if the heading is not the figure's name."""
    rows: Sequence[Any]
    """Dataclasses or dictionaries."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """The results of one section of the bench."""

    name: str
    tables: Sequence[Table]
    figures: Mapping[str, Any]
    """The saved figures: plain data and dataclasses."""
    plots: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """Points to plot over the curves of theory, by the subject of the plot."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What a reader must know."""


class Report:
    """Sections as they finish: each is printed and, if the run is saved, written with its plots."""

    def __init__(self, options: BenchOptions):
        self._options = options
        self._console = wide_console(is_out=not options.is_json)
        self._results: dict[str, dict[str, Any]] = {}
        self._load = os.getloadavg()[0]

    def add(self, section: Section) -> None:
        notes = [*filter(None, [self._options.note, busy_note(self._load)]), *section.notes]
        print_section(section, notes, self._console)
        result = measured(
            load_average_before=self._load, options=self._options.described(), notes=notes, **section.figures
        )
        self._results[section.name] = result
        if self._options.is_saved:
            name = f"{section.name}-{self._options.label}"
            write(name, result)
            for about, points in section.plots.items():
                draw(points, RESULTS / f"{name}-{about}.svg")

    def finish(self) -> None:
        """Prints all results as one line of JSON."""
        print(json.dumps(self._results))


def print_section(section: Section, notes: Sequence[str], console: Console) -> None:
    for table in section.tables:
        console.print(rich_table(table))
    for note in notes:
        console.print(f"Note: {note}", style="italic", soft_wrap=True)


def busy_note(load: float) -> str | None:
    """A warning if other processes were busy before the run; None if the machine was nearly idle."""
    cores = len(os.sched_getaffinity(0))
    if load < BUSY_SHARE * cores:
        return None
    return (
        f"the machine was busy before the run (load average {load:.1f} on {cores} cores): ratios mean little, times"
        " nothing"
    )


def rich_table(table: Table) -> RichTable:
    """The table as it is printed."""
    shown = RichTable(title=table.title, title_justify="left")
    rows = [row if isinstance(row, Mapping) else vars(row) for row in table.rows]
    columns = {
        column: form
        for column, form in table.columns.items()
        if any(row.get(figure(column)) is not None for row in rows)
    }
    for column in columns:
        shown.add_column(heading(column), justify="right")
    for row in rows:
        shown.add_row(*(shown_as(row.get(figure(column)), form) for column, form in columns.items()))
    return shown


def figure(column: str) -> str:
    return column.partition("|")[0]


def heading(column: str) -> str:
    return column.partition("|")[2] or column.replace("_", " ")


def shown_as(value: object, form: str) -> str:
    """A figure in its format; an estimate shows itself."""
    if value is None:
        return "-"
    return form.format(value if isinstance(value, int | float | str) else str(value))


def wide_console(*, is_out: bool = True) -> Console:
    """Standard output, or standard error; tables keep their width if it is not a terminal."""
    console = Console(file=sys.stdout if is_out else sys.stderr, highlight=False)
    return console if console.is_terminal else Console(file=console.file, highlight=False, width=WIDTH)


def save(name: str, **figures: Any) -> None:
    """Prints one JSON line and writes it to `results/<name>.json`, with a description of the machine."""
    result = measured(**figures)
    write(name, result)
    print(json.dumps(result))


def measured(**figures: Any) -> dict[str, Any]:
    """Figures as plain data, with the machine and the time."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = {"machine": describe_machine(), "time": now, "load_average": os.getloadavg()[0], **figures}
    return json.loads(json.dumps(result, default=plain))


def write(name: str, result: Mapping[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def plain(value: Any) -> Any:
    """Plain data for objects that json cannot serialise."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be serialised")
