"""`python -m tests.hostile --seed 1 --messages 100000`: sends hostile messages to real services and judges the answers.

Progress goes to standard error, one JSON document to standard output. The status is 1 if a problem was found;
then `--only-case N` repeats one case.
"""

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench.machine import describe_machine
from tests.hostile.child import running_child
from tests.hostile.options import Options, read_options
from tests.hostile.report import complaints, result
from tests.hostile.run import HostileRun, Outcome


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def run(options: Options, folder: Path) -> Outcome:
    async with running_child(folder) as child:
        say(f"ready; log in {folder}")
        return await HostileRun(child, options, say).run()


def main() -> int:
    options = read_options()
    outcome = uvloop.run(run(options, Path(tempfile.mkdtemp(prefix="specpair-hostile-"))))
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {"machine": describe_machine(), "time": time, **result(options, outcome)}
    text = json.dumps(document, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    found = complaints(outcome)
    for complaint in found:
        say(f"NOT IN ORDER: {complaint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
