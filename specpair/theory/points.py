"""Measured points, written by benches and read by plots.

A JSON file holds a list of objects, or an object with that list under "points" (so that a result may hold more). Other
keys are ignored. Each object has

    label                   the series it belongs to, such as "T = 0, model draft"
    num_speculative_tokens  K
    acceptance              alpha, 0 to 1, as measured at this K
    cost_ratio              c, draft step over target step, as measured
    predicted               speedup by Theorem 3.8 (Leviathan et al., "Fast Inference from Transformers via Speculative
                            Decoding") from the three above
    measured                speedup over K = 0 in the same run
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from specpair.errors import InvalidFieldError
from specpair.options import check_range
from specpair.theory.speedup import MAX_NUM_SPECULATIVE_TOKENS, MAX_RATIO


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of a bench: predicted and measured speedup. Raises InvalidFieldError for wrong values."""

    label: str
    num_speculative_tokens: int
    acceptance: float
    cost_ratio: float
    predicted: float
    measured: float

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise InvalidFieldError("label", "is not text")
        if not isinstance(self.num_speculative_tokens, int):
            raise InvalidFieldError("num_speculative_tokens", "is not a whole number")
        for name in ("num_speculative_tokens", "acceptance", "cost_ratio", "predicted", "measured"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidFieldError(name, "is not a number")
            check_range(name, value, 0, _LIMITS.get(name, MAX_RATIO))


_LIMITS = {"num_speculative_tokens": MAX_NUM_SPECULATIVE_TOKENS, "acceptance": 1}
_KEYS = tuple(Point.__dataclass_fields__)


def points_document(points: Iterable[Point]) -> list[dict[str, Any]]:
    """The JSON document that a bench writes."""
    return [asdict(point) for point in points]


def read_points(text: str) -> list[Point]:
    """The points of a JSON text. Raises InvalidFieldError that names the point and the key."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidFieldError("points", f"is not valid JSON: {error}") from None
    if isinstance(document, dict):
        document = document.get("points")
    if not isinstance(document, list):
        raise InvalidFieldError("points", 'is neither a list nor an object with a list under "points"')
    return [_point(index, entry) for index, entry in enumerate(document)]


def by_label(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The series in order of their first points, each sorted by K."""
    series: dict[str, list[Point]] = {}
    for point in points:
        series.setdefault(point.label, []).append(point)
    return {label: sorted(group, key=lambda point: point.num_speculative_tokens) for label, group in series.items()}


def typical(points: Iterable[Point]) -> tuple[float, float]:
    """Median acceptance and cost ratio of the points with K > 0, or of all points if there are none."""
    known = list(points)
    known = [point for point in known if point.num_speculative_tokens] or known
    return median(point.acceptance for point in known), median(point.cost_ratio for point in known)


def _point(index: int, entry: Any) -> Point:
    if not isinstance(entry, dict):
        raise InvalidFieldError(f"points[{index}]", "is not an object")
    if missing := [key for key in _KEYS if key not in entry]:
        raise InvalidFieldError(f"points[{index}]", f"has no {missing[0]}")
    try:
        return Point(**{key: entry[key] for key in _KEYS})
    except InvalidFieldError as error:
        raise InvalidFieldError(f"points[{index}].{error.metadata['field']}", error.message.split(": ", 1)[1]) from None
