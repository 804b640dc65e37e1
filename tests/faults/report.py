"""The result of a run as one JSON document, and the problems found. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tests.faults.options import Options
from tests.faults.readings import Reading, growth_per_minute
from tests.faults.recovery import DraftStop, TargetRestart
from tests.faults.run import Outcome
from tests.faults.streams import Streams

MORE_DESCRIPTORS = 16
"""Allowed increase during a run: connection pools vary in size."""
MORE_THREADS = 8
MOST_GROWTH_MIB = 64.0
"""Allowed growth of a process's memory, from its first reading under load to the last."""
DRAFT_DEADLINE_SECONDS = 5.0
"""The coordinator's default: a request may wait this long for a stopped draft, once."""
MOST_GAP_SECONDS = 1.0
"""Longest other gap between two messages, on an otherwise idle machine."""
MOST_RESTART_SECONDS = 2.0
"""From a restarted target's health to the next message of every stream."""


def result(options: Options, outcome: Outcome, streams: Streams) -> dict[str, Any]:
    """Everything that was counted and measured."""
    difference = streams.difference
    return {
        "options": {name: value for name, value in asdict(options).items() if name != "out"},
        "seconds": round(outcome.seconds, 1),
        "faults_of_processes": outcome.process_events.total(),
        "faults_of_ways": outcome.way_events.total(),
        "by_victim": by_victim(outcome.process_events + outcome.way_events),
        "requests": streams.request_count,
        "statuses": dict(streams.statuses),
        "resumed": dict(streams.resumed),
        "ahead_rounds": streams.ahead_count,
        "drafted_tokens": streams.drafted_count,
        "forced_tokens": streams.forced_count,
        "longest_request_seconds": round(streams.longest_seconds, 1),
        "recovered_after_seconds": [round(after, 2) for after in sorted(streams.recovered_after.values())],
        "compared_tokens": difference.compared,
        "lost_tokens": difference.lost,
        "repeated_tokens": difference.repeated,
        "changed_tokens": difference.changed,
        "wrong_texts": difference.wrong_texts,
        "violations": streams.violation_count,
        "first_violations": streams.violations,
        "held_after": {name: asdict(held) for name, held in outcome.held_after.items()},
        "processes": {name: process_figures(name, outcome) for name in sorted({one.name for one in outcome.after})},
    }


def recoveries(drafts: Sequence[DraftStop], targets: Sequence[TargetRestart]) -> dict[str, Any]:
    """In seconds, to the millisecond."""
    return {
        "draft_stops": [{name: round(value, 3) for name, value in asdict(one).items()} for one in drafts],
        "target_restarts": [{name: round(value, 3) for name, value in asdict(one).items()} for one in targets],
    }


def complaints(outcome: Outcome, streams: Streams) -> list[str]:
    """The problems found; empty if there are none."""
    found = list(streams.violations)
    for name, held in outcome.held_after.items():
        if held.sequences or held.used_blocks:
            found.append(f"{name} still holds {held.sequences} sequences and {held.used_blocks} blocks")
    for before in outcome.before:
        after = next(one for one in outcome.after if one.name == before.name)
        if after.life == before.life:
            found += _grown(before, after)
    return found


def slow_recoveries(drafts: Sequence[DraftStop], targets: Sequence[TargetRestart]) -> list[str]:
    """Recoveries that took longer than promised."""
    found = [
        f"a stopped draft delayed a request by {one.longest_gap:.1f} s, and again by {one.second_longest_gap:.1f} s"
        for one in drafts
        if one.longest_gap > DRAFT_DEADLINE_SECONDS + MOST_GAP_SECONDS or one.second_longest_gap > MOST_GAP_SECONDS
    ]
    return found + [
        f"the last stream continued {one.to_last_stream:.1f} s after a restarted target was healthy"
        for one in targets
        if one.to_last_stream > MOST_RESTART_SECONDS
    ]


def by_victim(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Number of faults by victim and kind."""
    ordered = sorted(counts.items())
    return {
        victim: {kind: count for (_, kind), count in group} for victim, group in groupby(ordered, lambda one: one[0][0])
    }


def process_figures(name: str, outcome: Outcome) -> dict[str, Any]:
    """Figures of one instance: memory growth in MiB per minute of its longest life, and what its last process holds."""
    before, after = (next(one for one in readings if one.name == name) for readings in (outcome.before, outcome.after))
    lives: dict[int, list[Reading]] = {}
    for reading in outcome.during:
        if reading.name == name:
            lives.setdefault(reading.life, []).append(reading)
    growth = growth_per_minute(max(lives.values(), key=len, default=[]))
    return {
        "starts": after.life,
        "resident_mib": [round(before.resident_mib, 1), round(after.resident_mib, 1)],
        "most_resident_mib": round(max((one.resident_mib for life in lives.values() for one in life), default=0.0), 1),
        "growth_mib_per_minute": None if growth is None else round(growth, 2),
        "descriptors": [before.descriptors, after.descriptors],
        "threads": [before.threads, after.threads],
    }


def _grown(before: Reading, after: Reading) -> list[str]:
    """Problems of one process that ran from start to end."""
    found = []
    if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
        found.append(f"{after.name} has {after.descriptors} descriptors open, {before.descriptors} before")
    if after.threads > before.threads + MORE_THREADS:
        found.append(f"{after.name} has {after.threads} threads, {before.threads} before")
    if after.resident_mib > before.resident_mib + MOST_GROWTH_MIB:
        found.append(f"{after.name} grew from {before.resident_mib:.0f} to {after.resident_mib:.0f} MiB")
    return found
