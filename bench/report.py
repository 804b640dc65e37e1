"""Results for people (a table), then for programs (one JSON line, and a file beside it)."""

import json
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"


def publish(name: str, title: str, formats: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Prints the columns named in `formats` and saves all of it."""
    table = Table(title=title)
    for column in formats:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(form.format(row[column]) for column, form in formats.items()))
    Console(width=130).print(table)
    save(name, rows=rows)


def save(name: str, **figures: Any) -> None:
    """Prints one JSON line and writes it to `results/<name>.json`, with what it was measured on."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = {"machine": describe_machine(), "time": now, "load_average": os.getloadavg()[0], **figures}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
