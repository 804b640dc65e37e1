"""The metrics of a Prometheus endpoint, with sums, means and quantiles."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class SampleKey(NamedTuple):
    """A time series."""

    name: str
    labels: Labels


class Exposition:
    """The numbers of one scrape, or the increase between two scrapes."""

    def __init__(self, values: Mapping[SampleKey, float]):
        self._values = values

    @classmethod
    def parse(cls, text: str) -> "Exposition":
        """Reads Prometheus's text format. Raises ValueError for anything else."""
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return cls({SampleKey(name, frozenset(labels.items())): value for name, labels, value, *_ in samples})

    def since(self, before: "Exposition") -> "Exposition":
        """The increase; a counter that fell counts in full, since its process was restarted. Not for gauges."""
        old = before._values
        return Exposition(
            {
                key: value - old.get(key, 0.0) if value >= old.get(key, 0.0) else value
                for key, value in self._values.items()
            }
        )

    def has(self, name: str) -> bool:
        return any(key.name == name for key in self._values)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series with these labels; 0 without any."""
        wanted = labels.items()
        return sum(value for key, value in self._values.items() if key.name == name and wanted <= key.labels)

    def value(self, name: str) -> float | None:
        """A gauge; None if it is absent or not a number."""
        value = self.total(name)
        return value if self.has(name) and not math.isnan(value) else None

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Sums by the values of a label over series with these labels, in order of first appearance."""
        wanted = labels.items()
        sums: dict[str, float] = defaultdict(float)
        for key, value in self._values.items():
            if key.name == name and wanted <= key.labels and (of := dict(key.labels).get(label)) is not None:
                sums[of] += value
        return dict(sums)

    def mean(self, name: str, **labels: str) -> float | None:
        """The mean of a histogram; None if it is empty."""
        count = self.total(f"{name}_count", **labels)
        return self.total(f"{name}_sum", **labels) / count if count else None

    def quantile(self, name: str, share: float) -> float | None:
        """A quantile of a histogram, interpolated linearly within its bucket, as Prometheus does it.

        None if it is empty; the highest bound if the quantile is above it.
        """
        buckets = sorted((float(bound), count) for bound, count in self.by(f"{name}_bucket", "le").items())
        if not buckets or not buckets[-1][1]:
            return None
        rank = share * buckets[-1][1]
        lower, below = 0.0, 0.0
        for bound, count in buckets:
            if count >= rank and math.isfinite(bound):
                inside = count - below
                return lower + (bound - lower) * ((rank - below) / inside if inside else 1.0)
            if math.isfinite(bound):
                lower, below = bound, count
        return lower
