"""Spans of time as a Chrome trace: JSON for ui.perfetto.dev and chrome://tracing.

The format is the Trace Event Format: complete events (`X`) on threads of processes, counters (`C`), and metadata (`M`)
that names processes and threads. Times are in microseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Track(NamedTuple):
    """A line of spans. Spans of one track follow each other or are nested."""

    process: str
    thread: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """One activity with its start and duration."""

    track: Track
    name: str
    start_us: int
    duration_us: int
    args: Mapping[str, Any] = field(default_factory=dict)
    """Shown when the span is selected; must be JSON values."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A number at a time, drawn as a curve."""

    process: str
    name: str
    at_us: int
    value: float


def chrome_trace(
    tracks: Sequence[Track],
    spans: Iterable[Span],
    samples: Iterable[Sample] = (),
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document. Tracks are shown in the given order; `about` is stored next to the events.

    Raises KeyError for a span whose track, or a sample whose process, is not among the tracks.
    """
    pids = {name: i for i, name in enumerate(dict.fromkeys(track.process for track in tracks), 1)}
    tids = {track: i for i, track in enumerate(dict.fromkeys(tracks), 1)}
    events = [*_process_names(pids), *_thread_names(pids, tids)]
    # Of spans that begin together the longer one comes first: it encloses the other.
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        events.append(_complete(span, pids[span.track.process], tids[span.track]))
    events += [_counter(sample, pids[sample.process]) for sample in samples]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about or {})}


def _process_names(pids: Mapping[str, int]) -> Iterable[dict[str, Any]]:
    for name, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _thread_names(pids: Mapping[str, int], tids: Mapping[Track, int]) -> Iterable[dict[str, Any]]:
    for track, tid in tids.items():
        place = {"pid": pids[track.process], "tid": tid}
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": track.thread}}
        yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": tid}}


def _complete(span: Span, pid: int, tid: int) -> dict[str, Any]:
    times = {"ts": span.start_us, "dur": span.duration_us}
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.track.process,
        "pid": pid,
        "tid": tid,
        **times,
        "args": dict(span.args),
    }


def _counter(sample: Sample, pid: int) -> dict[str, Any]:
    return {"ph": "C", "name": sample.name, "pid": pid, "ts": sample.at_us, "args": {sample.name: sample.value}}
