"""Draws dashboard panels from Prometheus data, for the docs: `python -m deploy.grafana.render --seconds 300`."""

import argparse
import itertools
import json
import math
import re
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deploy.grafana.dashboards import FOLDER
from deploy.grafana.panels import ALL_NAMESPACES, NAMESPACE, RATIO, SECONDS, TIMES

RATE_INTERVAL = "30s"
WIDTH, HEIGHT, DPI = 6.0, 2.9, 130
MILLISECONDS = 1000.0

PANELS = {
    "acceptance": (
        "Acceptance rate of requests",
        "Acceptance by position",
        "Acceptance by drafter and rule",
        "Tokens per round",
        "Speedup against plain decoding",
        "Where the time of a round goes",
    ),
    "serving": ("Tokens per second", "Inter-token latency"),
}
"""Titles of the drawn panels, by dashboard."""

Series = dict[str, Any]


class Source:
    """The last seconds of data in a Prometheus."""

    def __init__(self, url: str, seconds: float):
        self._url = url
        self._end = time.time()
        self._start = self._end - seconds
        self._step = max(seconds / 120, 1.0)

    def series(self, target: Series) -> list[Series]:
        """The series of a panel's query, each with its `name`, `minutes` and `values`."""
        expr = target["expr"].replace("$__rate_interval", RATE_INTERVAL).replace(f"${NAMESPACE}", ALL_NAMESPACES)
        query = {"query": expr, "start": self._start, "end": self._end, "step": self._step}
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(query)}") as answer:
            result = json.load(answer)["data"]["result"]
        return [self._one(target["legendFormat"], series) for series in result]

    def _one(self, legend: str, series: Series) -> Series:
        name = re.sub(r"{{(\w+)}}", lambda label: series["metric"].get(label[1], ""), legend)
        return {
            "name": "" if name == "__auto" else name,
            "minutes": [(stamp - self._start) / 60 for stamp, _ in series["values"]],
            "values": [float(value) for _, value in series["values"]],
        }


def draw(panel: Series, source: Source) -> Figure:
    """One panel, as Grafana would show it."""
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(panel["title"], fontsize=10, loc="left")
    found = [series for target in panel["targets"] for series in source.series(target)]
    {"timeseries": _lines, "heatmap": _heat_map, "bargauge": _bars}[panel["type"]](axes, panel, found)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _lines(axes: Axes, panel: Series, found: list[Series]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    scale = MILLISECONDS if defaults["unit"] == SECONDS else 1.0
    if defaults["custom"]["stacking"]["mode"] == "normal":
        heights = [[0.0 if math.isnan(value) else value * scale for value in series["values"]] for series in found]
        axes.stackplot(found[0]["minutes"], heights, labels=[series["name"] for series in found], alpha=0.7)
    else:
        for series in found:
            axes.plot(series["minutes"], [value * scale for value in series["values"]], label=series["name"], lw=1.4)
    axes.set_ylim(bottom=0, top=defaults.get("max"))
    _label(axes, defaults["unit"])
    axes.set_xlabel("minutes", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.22))


def _heat_map(axes: Axes, panel: Series, found: list[Series]) -> None:
    """Prometheus's buckets are cumulative; a cell shows the count of its own bucket."""
    ordered = sorted((series for series in found if series["name"] != "+Inf"), key=lambda series: float(series["name"]))
    below = [dict(zip(series["minutes"], series["values"], strict=True)) for series in ordered]
    minutes = sorted(set().union(*below))
    totals = [[bucket.get(minute, 0.0) for minute in minutes] for bucket in below]
    counts = [
        totals[0],
        *([b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(totals)),
    ]
    shown = [[value if value > 1e-9 else math.nan for value in line] for line in counts]
    edges = [0.0, *(float(series["name"]) for series in ordered)]
    step = minutes[1] - minutes[0]
    mesh = axes.pcolormesh([*minutes, minutes[-1] + step], edges, shown, cmap="Oranges")
    axes.figure.colorbar(mesh, ax=axes, label="outputs").ax.tick_params(labelsize=8)
    _label(axes, panel["options"]["yAxis"]["unit"])
    axes.set_xlabel("minutes", fontsize=8)


def _bars(axes: Axes, panel: Series, found: list[Series]) -> None:
    ordered = sorted(found, key=lambda series: int(series["name"]))
    bars = axes.bar([series["name"] for series in ordered], [series["values"][-1] for series in ordered], width=0.7)
    axes.bar_label(bars, fmt="{:.0%}", fontsize=8)
    axes.set_ylim(0, 1)
    _label(axes, panel["fieldConfig"]["defaults"]["unit"])
    axes.set_xlabel("position in the proposal", fontsize=8)


def _label(axes: Axes, unit: str) -> None:
    """The unit of the vertical axis."""
    if unit == RATIO:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif unit == SECONDS:
        axes.set_ylabel("ms", fontsize=8)
    elif unit == TIMES:
        axes.axhline(1, color="grey", lw=0.8, ls="--")
        axes.set_ylabel("times plain", fontsize=8)
    else:
        axes.set_ylabel("per second" if unit.startswith("suffix") else "", fontsize=8)


def file_name(title: str) -> str:
    """`panel-tokens-per-round.png` for `Tokens per round`."""
    return f"panel-{re.sub('[^a-z]+', '-', title.lower())}.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--seconds", type=float, default=300.0, help="period to draw, up to now (default 300)")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    matplotlib.use("Agg")
    source = Source(options.prometheus, options.seconds)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, titles in PANELS.items():
        panels = json.loads((FOLDER / f"{name}.json").read_text())["panels"]
        for title in titles:
            panel = next(panel for panel in reversed(panels) if panel["title"] == title)
            draw(panel, source).savefig(options.folder / file_name(title))


if __name__ == "__main__":
    main()
