"""`python -m tests.faults --seed 1 --events 500 --streams 16`: injects faults into a pair and looks for lost tokens.

Progress goes to standard error, one JSON document to standard output. The status is 1 if a promise was broken.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from bench.machine import describe_machine
from tests.faults.cluster import ENDLESS_LEASE_SECONDS, LEASE_SECONDS, ClusterConfig, running_cluster
from tests.faults.options import Options, read_options
from tests.faults.pairs import find_pair
from tests.faults.recovery import measure_draft_stop, measure_target_restart
from tests.faults.reference import read_reference
from tests.faults.report import complaints, recoveries, result, slow_recoveries
from tests.faults.run import FaultRun
from tests.faults.workload import MOST_PROMPT_TOKENS, SCHEMA, make_cases


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def run(options: Options, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Runs it. Returns the document and the list of problems found."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that all services are stopped
    pair = find_pair(options.pair, folder, options.head)
    limits = ["--max-model-len", str(options.max_tokens + MOST_PROMPT_TOKENS)]
    lease = ENDLESS_LEASE_SECONDS if options.no_kills else LEASE_SECONDS
    config = ClusterConfig(
        folder=folder,
        target_model=str(pair.target),
        draft_model=str(pair.draft),
        target_count=options.targets,
        draft_count=options.drafts,
        target_flags=target_flags(options) + head_flags(options, pair.head),
        model_flags=["--sequence-lease", str(lease), *limits],
        draft_flags=["--own-draft", str(pair.second) if options.own_draft == "model" else options.own_draft],
        coordinator_flags=[
            *("--work-ahead", options.work_ahead),
            *("--num-tree-tokens", str(options.trees)),
            *("--merge", options.merge),
        ],
        are_drafts_named=options.merge == "tree",
    )
    cases = make_cases(options.seed, options.cases, pair.vocab_size, options.max_tokens)
    drafter, schema = options.head or options.drafter, SCHEMA if options.structured else None
    cases = [replace(case, drafter=drafter, schema=schema) for case in cases]
    async with running_cluster(config) as cluster:
        say(f"ready; logs in {folder}")
        expected = await read_reference(cluster.stub, cases)
        say(f"{len(expected)} reference outputs of the target alone")
        draft_stops = [await measure_draft_stop(cluster, cases, options.streams) for _ in range(options.recoveries)]
        restarts = [await measure_target_restart(cluster, cases, options.streams) for _ in range(options.recoveries)]
        fault_run = FaultRun(cluster, options, say)
        streams = await fault_run.run(cases, expected)
    document = {**result(options, fault_run.outcome, streams), **recoveries(draft_stops, restarts)}
    found = complaints(fault_run.outcome, streams) + slow_recoveries(draft_stops, restarts)
    return document, found + not_shown(options, streams.speculated)


def not_shown(options: Options, speculated: Counter[str]) -> list[str]:
    """What the run was meant to have and did not."""
    wanted = {
        "ahead_rounds": options.work_ahead == "on",
        "drafted_tokens": True,
        "tokens_of_several_drafts": options.merge == "tree",
        "accepted_guesses": options.own_draft != "none",
        "forced_tokens": options.structured,
    }
    return [
        f"nothing is shown: {name} is 0" for name, is_wanted in wanted.items() if is_wanted and not speculated[name]
    ]


def target_flags(options: Options) -> list[str]:
    """What makes the rows of targets the same bits in all passes, unless they may differ."""
    if options.may_differ:
        return []
    needs_compiled = options.trees or options.merge == "tree" or options.head == "eagle"
    return ["--quantization", "int8"] if needs_compiled else ["--deterministic"]


def head_flags(options: Options, folder: str | None) -> list[str]:
    """The target's head; of those only an EAGLE-3 one proposes trees."""
    if folder is None:
        return []
    trees = ["--head-tree-tokens", str(options.trees)] if options.head == "eagle" else []
    return ["--head", folder, *trees]


def main() -> int:
    options = read_options()
    folder = Path(tempfile.mkdtemp(prefix="specpair-faults-"))
    document, found = uvloop.run(run(options, folder))
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps({"machine": describe_machine(), "time": time, **document}, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    for complaint in found:
        say(f"NOT IN ORDER: {complaint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
