"""Plots of results: measured speedups over the curves of theory."""

from collections.abc import Sequence
from pathlib import Path

from specpair.theory.plot import plot_over_num_speculative_tokens, save, series_curves
from specpair.theory.points import Point


def draw(points: Sequence[Point], path: Path) -> None:
    """Speedup over K, one series for each label. Needs matplotlib: specpair[plot]."""
    longest = max(point.num_speculative_tokens for point in points)
    save(plot_over_num_speculative_tokens(series_curves(points), points, longest=longest), path)
