"""Results for people (a table), then for programs (one JSON line, and a file beside it)."""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"


def publish(name: str, title: str, formats: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Prints the columns named in `formats` and writes all of it to `results/<name>.json`."""
    table = Table(title=title)
    for column in formats:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(form.format(row[column]) for column, form in formats.items()))
    Console(width=130).print(table)
    result = {"machine": describe_machine(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
