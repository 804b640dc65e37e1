"""The process of a worker that checks structured outputs: started, asked, ended. Its methods block, except `kill`."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

END_SECONDS = 5.0
"""Longest wait for a process whose output has ended; then it is killed."""
ROOT = Path(__file__).parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from coordinator.requests.structure_worker import main; main()"


class StructureProcess:
    """A worker (structure_worker.py). One thread at a time asks it; any may kill it meanwhile.

    Not a subprocess of the event loop: uvloop starts those by fork, whose handlers, gRPC's among them, then run beside
    gRPC's threads, and now and then a process died of it before it began. This one is started by vfork, which runs
    none.
    """

    def __init__(self) -> None:
        """Starts it. Raises OSError if the system cannot."""
        self._process = subprocess.Popen(
            (sys.executable, "-c", START, str(ROOT)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: dict[str, Any]) -> Any:
        """The worker's answer; None if it ended."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None and answered is not None
        with suppress(OSError):  # it has ended
            asked.write(json.dumps(question).encode() + b"\n")
            asked.flush()
        line = answered.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Waits until it has ended, which it must be about to do, and returns how, as `Popen.returncode`."""
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what it did not read any more
                pipe.close()
        return code
