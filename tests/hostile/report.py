"""The result of a run as one JSON document, and the problems found. Pure."""

from dataclasses import asdict
from typing import Any

from tests.hostile.options import Options
from tests.hostile.run import Outcome, holds_nothing, is_no_more
from tests.hostile.verdicts import WRITE_FAILED

MOST_HEALTH_SECONDS = 5.0
"""Longest health check on a busy machine; a longer one means that the event loop is blocked."""
MOST_GROWTH_MIB = 384
"""Allowed growth of the services' memory: messages up to 64 MiB leave pages that are reused."""
MOST_WRITE_FAILURES = 0.002
"""Allowed share of messages whose outcome the attacker's own library does not report."""
MOST_KEPT_TEXTS = 4
"""The target's own limit."""


def result(options: Options, outcome: Outcome) -> dict[str, Any]:
    """Everything that was counted."""
    tally = outcome.tally
    return {
        "options": {name: value for name, value in asdict(options).items() if name != "out"},
        "seconds": round(outcome.seconds, 1),
        "messages": tally.messages.total(),
        "messages_by_kind": dict(tally.messages.most_common()),
        "verdicts": dict(tally.verdicts.most_common()),
        "violations": tally.violation_count,
        "first_violations": tally.violations,
        "faults_in_log": len(outcome.faults),
        "first_faults_in_log": outcome.faults[:20],
        "slowest_call_seconds": round(tally.slowest_seconds, 2),
        "slowest_call": tally.slowest,
        "health_checks": outcome.health_checks,
        "longest_health_seconds": {name: round(value, 3) for name, value in outcome.longest_health_seconds.items()},
        "truth_checks": outcome.truth_checks,
        "held_before": outcome.before,
        "held_after": outcome.after,
    }


def complaints(outcome: Outcome) -> list[str]:
    """The problems found; empty if there are none."""
    before, after = outcome.before, outcome.after
    found = [*outcome.tally.violations, *(f"in the log: {line}" for line in outcome.faults)]
    if not holds_nothing(after):
        found.append(f"sequences, blocks or requests are left: {after}")
    if not is_no_more(after, before):
        found.append(f"tasks or descriptors are left: {after}; before there were {before}")
    if after["memory_mib"] > before["memory_mib"] + MOST_GROWTH_MIB:
        found.append(f"memory grew from {before['memory_mib']} to {after['memory_mib']} MiB")
    if after["target"]["kept_texts"] > MOST_KEPT_TEXTS:
        found.append(f"{after['target']['kept_texts']} texts are kept")
    unknown_count, message_count = outcome.tally.verdicts[WRITE_FAILED], outcome.tally.messages.total()
    if unknown_count > MOST_WRITE_FAILURES * message_count:
        found.append(f"{unknown_count} calls ended while they were being sent, with an unknown outcome")
    for name, seconds in outcome.longest_health_seconds.items():
        if seconds > MOST_HEALTH_SECONDS:
            found.append(f"a health check of {name} took {seconds:.1f} s")
    return found
