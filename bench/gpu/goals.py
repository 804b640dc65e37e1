"""What is hoped for on a GPU, beside what was measured."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bench.ratios import Estimate
from bench.report import Table

Rows = list[dict[str, Any]]


class Goal(NamedTuple):
    """A bound for a figure."""

    figure: str
    bound: float
    is_most: bool
    """Whether the figure may be at most the bound, and not at least."""

    def is_met_by(self, measured: float) -> bool:
        return measured <= self.bound if self.is_most else measured >= self.bound


VERIFY = Goal("verify of 5 rows, batch 1, to its floor", 1.3, True)
STEP = Goal("milliseconds of a draft step, batch 1, T = 1", 0.4, True)
SPEEDUP = Goal("adaptive to K = 0, batch 1, T = 0", 1.5, False)
PLAIN = Goal("K = 0 to transformers with a static cache, batch 1", 1.0, False)
GOALS = (VERIFY, STEP, SPEEDUP, PLAIN)


def reached(figures: Mapping[str, Rows | None]) -> Iterator[dict[str, Any]]:
    """Each goal with the figure that was measured, None if it was not."""
    for goal, measured in zip(GOALS, found(figures), strict=True):
        is_met = None if measured is None else "yes" if goal.is_met_by(measured) else "no"
        bound = f"at {'most' if goal.is_most else 'least'} {goal.bound}"
        yield {"figure": goal.figure, "goal": bound, "measured": measured, "is_met": is_met}


def found(figures: Mapping[str, Rows | None]) -> list[float | None]:
    """The figures of the goals, in their order."""
    static = row_with(figures.get("decoding"), batch=1)
    speedup = row_with(figures.get("pair"), batch=1, temperature=0.0)
    estimate: Estimate | None = speedup.get("ratio")
    return [
        row_with(figures.get("passes"), batch=1, rows=5).get("ratio"),
        row_with(figures.get("chains"), batch=1, drawn="block, T=1").get("step_ms"),
        None if estimate is None else estimate.value,
        static["specpair"] / static["static"] if static else None,
    ]


def row_with(found: Rows | None, /, **values: object) -> dict[str, Any]:
    """The row with these values; empty if there is none."""
    return next((row for row in found or () if all(row[name] == value for name, value in values.items())), {})


def table(figures: Mapping[str, Rows | None]) -> Table:
    return Table(
        title="goals",
        columns={"figure": "{}", "goal": "{}", "measured": "{:.2f}", "is_met|met": "{}"},
        rows=list(reached(figures)),
    )
