"""Measured points as JSON, and what is drawn of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specpair.errors import InvalidFieldError
from specpair.theory.plot import (
    Curve,
    plot_over_acceptance,
    plot_over_num_speculative_tokens,
    save,
    series_curves,
)
from specpair.theory.points import Point, by_label, points_document, read_points, typical
from specpair.theory.speedup import optimum, walltime_factor


def point(label: str, k: int, acceptance: float, cost_ratio: float, measured: float) -> Point:
    predicted = walltime_factor(acceptance, k, cost_ratio)
    return Point(
        label=label,
        num_speculative_tokens=k,
        acceptance=acceptance,
        cost_ratio=cost_ratio,
        predicted=predicted,
        measured=measured,
    )


POINTS = [
    point("T = 0", 5, 0.8, 0.10, 2.2),
    point("T = 1", 1, 0.5, 0.10, 1.3),
    point("T = 0", 0, 0.0, 0.00, 1.0),
    point("T = 0", 1, 0.7, 0.12, 1.4),
    point("T = 0", 3, 0.9, 0.20, 1.9),
]


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def numbers(data: Any) -> list[float]:
    """Coordinates of a line, which matplotlib types too widely."""
    return [float(value) for value in data]


def drawn(axes: Axes, marker: str, face: str | None = None) -> list[tuple[float, float]]:
    """The positions of all markers of a kind; legend entries are empty lines."""
    lines = [line for line in axes.lines if line.get_marker() == marker]
    lines = [line for line in lines if face is None or (line.get_markerfacecolor() == "white") == (face == "white")]
    return sorted(
        place for line in lines for place in zip(numbers(line.get_xdata()), numbers(line.get_ydata()), strict=True)
    )


def curves_of(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """Data of the solid lines but the one at 1."""
    solid = [line for line in axes.lines if line.get_linestyle() == "-" and line.get_color() != "grey"]
    return [(numbers(line.get_xdata()), numbers(line.get_ydata())) for line in solid]


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_points_come_back_as_they_were_written() -> None:
    text = json.dumps(points_document(POINTS))
    assert read_points(text) == POINTS
    wrapped = {"machine": {"cores": 2}, "points": [{**entry, "batch": 4} for entry in points_document(POINTS)]}
    assert read_points(json.dumps(wrapped)) == POINTS


def test_the_keys_are_those_that_were_agreed() -> None:
    (document,) = points_document(POINTS[:1])
    assert list(document) == ["label", "num_speculative_tokens", "acceptance", "cost_ratio", "predicted", "measured"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measured": None}, "points[0].measured: is not a number"),
        ({"measured": True}, "points[0].measured: is not a number"),
        ({"measured": float("nan")}, "points[0].measured: is nan"),
        ({"predicted": -1}, "points[0].predicted: is -1; it must be between 0 and 1000000.0"),
        ({"acceptance": 1.01}, "points[0].acceptance: is 1.01; it must be between 0 and 1"),
        ({"num_speculative_tokens": 2.5}, "points[0].num_speculative_tokens: is not a whole number"),
        ({"num_speculative_tokens": -1}, "points[0].num_speculative_tokens: is -1"),
        ({"label": 7}, "points[0].label: is not text"),
    ],
)
def test_a_wrong_value_is_named_with_its_point(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read_points(json.dumps([{**points_document(POINTS)[0], **change}]))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "points: is not valid JSON"),
        ("3", "points: is neither a list nor an object"),
        ('{"rows": []}', "points: is neither a list nor an object"),
        ("[3]", "points[0]: is not an object"),
        ('[{"label": "x"}]', "points[0]: has no num_speculative_tokens"),
    ],
)
def test_what_holds_no_points_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read_points(text)
    assert str(caught.value).startswith(message)


def test_series_are_the_labels_by_rising_k() -> None:
    series = by_label(POINTS)
    assert {label: [entry.num_speculative_tokens for entry in group] for label, group in series.items()} == {
        "T = 0": [0, 1, 3, 5],
        "T = 1": [1],
    }
    assert typical(series["T = 0"]) == (0.8, 0.12)  # medians of those that propose
    assert typical(series["T = 0"][:1]) == (0.0, 0.0)
    assert series_curves(POINTS) == [Curve("T = 0", 0.8, 0.12), Curve("T = 1", 0.5, 0.1)]


def test_curves_over_k_are_theorem_3_8_with_the_best_marked() -> None:
    curves = [Curve("", 0.8, 0.05), Curve("profile", [0.9, 0.5, 0.1], 0.1, 0.2)]
    axes = axes_of(plot_over_num_speculative_tokens(curves, [], longest=10))
    (xs, ys), (short_xs, short_ys) = curves_of(axes)
    assert xs == list(range(11)) and ys == [walltime_factor(0.8, k, 0.05) for k in range(11)]
    assert short_xs == [0, 1, 2, 3] and short_ys == [walltime_factor([0.9, 0.5, 0.1], k, 0.1, 0.2) for k in range(4)]
    bests: Sequence[tuple[float, float]] = [optimum(0.8, 0.05), optimum([0.9, 0.5, 0.1], 0.1, 0.2)]
    assert drawn(axes, "*") == sorted((float(k), factor) for k, factor in bests)
    assert legend_of(axes) == ["a = 0.8, c = 0.05", "profile, c = 0.1, overhead = 0.2", "best K"]


def test_points_over_k_stand_at_what_was_measured_in_the_colour_of_their_curve() -> None:
    axes = axes_of(plot_over_num_speculative_tokens(series_curves(POINTS), POINTS, longest=6))
    assert drawn(axes, "o", "filled") == sorted((entry.num_speculative_tokens, entry.measured) for entry in POINTS)
    assert drawn(axes, "o", "white") == sorted((entry.num_speculative_tokens, entry.predicted) for entry in POINTS)
    assert legend_of(axes) == [
        "T = 0, a = 0.8, c = 0.12",
        "T = 1, a = 0.5, c = 0.1",
        "best K",
        "measured",
        "predicted for it",
    ]
    colors = {tuple(numbers(line.get_ydata())): line.get_color() for line in axes.lines if line.get_marker() == "o"}
    assert colors[(1.3,)] == "C1" and colors[(1.0, 1.4, 1.9, 2.2)] == "C0"


def test_over_acceptance() -> None:
    axes = axes_of(plot_over_acceptance([1, 5], 0.1, POINTS, overhead=0.1))
    curves = curves_of(axes)
    assert [(xs[0], xs[-1]) for xs, _ in curves] == [(0.0, 1.0)] * 2
    for k, (xs, ys) in zip((1, 5), curves, strict=True):
        assert ys == [walltime_factor(x, k, 0.1, 0.1) for x in xs]
    assert drawn(axes, "o", "filled") == sorted((entry.acceptance, entry.measured) for entry in POINTS)
    assert legend_of(axes)[:2] == ["K = 1, c = 0.1", "K = 5, c = 0.1"]


def test_a_picture_is_the_same_file_every_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg", "one.png"):
        save(plot_over_num_speculative_tokens(series_curves(POINTS), POINTS, longest=6), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"<svg" in (tmp_path / "one.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
