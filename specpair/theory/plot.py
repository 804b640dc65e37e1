"""Plots predicted speedups as curves and measured ones as points. Imports matplotlib only to draw.

points = read_points(Path("bench/results/comparison-bundled.json").read_text())
save(plot_over_num_speculative_tokens(series_curves(points), points, longest=8), Path("speedup.svg"))
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specpair.theory.points import Point, by_label, typical
from specpair.theory.speedup import Acceptance, longest_known, optimum, walltime_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (7.0, 4.5)
"""Inches."""
DOTS_PER_INCH = 150
ACCEPTANCE_STEPS = 200


class Curve(NamedTuple):
    """A prediction over K: Theorem 3.8 of Leviathan et al. with these inputs."""

    label: str
    acceptance: Acceptance
    cost_ratio: float
    overhead: float = 0.0


def series_curves(points: Iterable[Point]) -> list[Curve]:
    """A curve for each series of points, from the medians of its acceptances and cost ratios."""
    return [Curve(label, *typical(group)) for label, group in by_label(points).items()]


def plot_over_num_speculative_tokens(curves: Sequence[Curve], points: Iterable[Point], *, longest: int) -> "Figure":
    """Speedup over K = 0 .. longest, with the best K of each curve marked.

    Points have the colour of the curve of their label. Each stands at its measured speedup, with a line to the
    prediction from its own acceptance and cost ratio.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure("tokens proposed in a round (K)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for index, curve in enumerate(curves):
        ks = range(longest_known(curve.acceptance, longest) + 1)
        factors = [walltime_factor(curve.acceptance, k, curve.cost_ratio, curve.overhead) for k in ks]
        axes.plot(ks, factors, color=f"C{index}", linewidth=1.2, label=_legend(curve))
        best = optimum(curve.acceptance, curve.cost_ratio, curve.overhead, limit=ks[-1])
        axes.plot(*best, color=f"C{index}", linestyle="none", marker="*", markersize=11)
    colors = {curve.label: f"C{index}" for index, curve in enumerate(curves)}
    groups = by_label(points)
    for label, group in groups.items():
        xs = [float(point.num_speculative_tokens) for point in group]
        _draw_points(axes, xs, group, colors.get(label, "black"))
    axes.plot([], [], color="black", linestyle="none", marker="*", markersize=11, label="best K")
    _finish(axes, has_points=bool(groups))
    return figure


def plot_over_acceptance(
    num_speculative_tokens: Sequence[int], cost_ratio: float, points: Iterable[Point], *, overhead: float = 0.0
) -> "Figure":
    """Speedup over acceptance 0 .. 1, a curve for each K; points at their own acceptance, in the colour of their K."""
    figure, axes = _figure("acceptance")
    acceptances = [step / ACCEPTANCE_STEPS for step in range(ACCEPTANCE_STEPS + 1)]
    colors = {k: f"C{index}" for index, k in enumerate(num_speculative_tokens)}
    for k, color in colors.items():
        factors = [walltime_factor(acceptance, k, cost_ratio, overhead) for acceptance in acceptances]
        axes.plot(acceptances, factors, color=color, linewidth=1.2, label=f"K = {k}, c = {cost_ratio:.3g}")
    measured = list(points)
    for point in measured:
        _draw_points(axes, [point.acceptance], [point], colors.get(point.num_speculative_tokens, "black"))
    _finish(axes, has_points=bool(measured))
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Writes the figure in the format of the suffix. An SVG of the same figure is always the same file."""
    from matplotlib import rc_context

    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "specpair"}):
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)


def _figure(axis: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(axis)
    axes.set_ylabel("speedup over the target alone")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.grid(alpha=0.3)
    return figure, axes


def _draw_points(axes: "Axes", xs: Sequence[float], points: Sequence[Point], color: str) -> None:
    predicted = [point.predicted for point in points]
    measured = [point.measured for point in points]
    axes.vlines(xs, predicted, measured, color=color, linewidth=0.8, linestyles="dotted")
    axes.plot(xs, predicted, color=color, linestyle="none", marker="o", markerfacecolor="white", markersize=5)
    axes.plot(xs, measured, color=color, linestyle="none", marker="o", markersize=5)


def _finish(axes: "Axes", *, has_points: bool) -> None:
    axes.set_ylim(bottom=0.0)
    if has_points:
        axes.plot([], [], color="black", linestyle="none", marker="o", label="measured")
        axes.plot(
            [], [], color="black", linestyle="none", marker="o", markerfacecolor="white", label="predicted for it"
        )
    axes.legend(fontsize="small")


def _legend(curve: Curve) -> str:
    inputs = [f"c = {curve.cost_ratio:.3g}"]
    if not isinstance(curve.acceptance, Sequence):
        inputs.insert(0, f"a = {curve.acceptance:.3g}")
    if curve.overhead:
        inputs.append(f"overhead = {curve.overhead:.3g}")
    return ", ".join([curve.label, *inputs] if curve.label else inputs)
