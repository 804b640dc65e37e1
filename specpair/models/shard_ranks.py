"""The other ranks of a group, as children of the leader's process on one machine.

A child's standard input is a pipe from the leader: the first line says what to load, and its end that the leader is
gone, however it went. So no rank outlives the leader.
"""

import json
import logging
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import specpair
from specpair.engine_config import EngineConfig
from specpair.sharding.config import Membership, rank_environment
from specpair.sharding.group import GroupLostError

MODULE = "specpair.rank"
STOP_SECONDS = 10.0
"""Time for the children to end by themselves."""

log = logging.getLogger(__name__)


class ShardRanks:
    """Ranks 1 and up. Starts them at once."""

    def __init__(self, config: EngineConfig):
        self._size = config.tensor_parallel_size
        self._folder = tempfile.mkdtemp(prefix="specpair-group-")
        self._lock = threading.Lock()
        self._on_end: Callable[[str], None] | None = None
        self._is_ending = False
        self.reason = ""
        """Why the group cannot go on: the first rank that ended by itself."""
        self._children = [self._start(config, rank) for rank in range(1, self._size)]
        for rank, child in enumerate(self._children, 1):
            threading.Thread(target=self._watch, args=(rank, child), name=f"rank {rank} watch", daemon=True).start()

    @property
    def leader(self) -> Membership:
        return self._member(0)

    def check(self) -> None:
        """Raises GroupLostError if a rank has ended."""
        if self.reason:
            raise GroupLostError(self.reason)

    def on_end(self, callback: Callable[[str], None]) -> None:
        """Calls back, in any thread, with the reason, when a rank ends by itself."""
        with self._lock:
            self._on_end = callback
            reason = self.reason
        if reason:
            callback(reason)

    def forget_meeting(self) -> None:
        """The ranks have met: a leader that is killed leaves nothing behind."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def expect_end(self) -> None:
        """From now on it is no fault that a rank ends."""
        self._is_ending = True

    def stop(self) -> None:
        """Waits for the ranks, which have been told to end, and kills those that do not."""
        self.expect_end()
        for child in self._children:
            close_pipe(child)
        for child in self._children:
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("rank process %d did not end and is killed", child.pid)
        self.kill()

    def kill(self) -> None:
        """Ends the ranks at once."""
        self.expect_end()
        for child in self._children:
            close_pipe(child)
            child.kill()
            child.wait()
        self.forget_meeting()

    def _member(self, rank: int) -> Membership:
        return Membership(
            rank=rank,
            size=self._size,
            local_rank=rank,
            local_size=self._size,
            meeting_file=str(Path(self._folder) / "meeting"),
        )

    def _start(self, config: EngineConfig, rank: int) -> "subprocess.Popen[bytes]":
        task = {
            "engine": asdict(replace(config, pace=None)),
            "member": asdict(self._member(rank)),
            "folder": str(Path.cwd()),
            **log_settings(),
        }
        child = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            cwd=Path(specpair.__file__).parents[1],  # where Python finds the package
            env=rank_environment(rank),
            start_new_session=True,  # Ctrl-C goes to the leader alone, which ends the others
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps(task).encode() + b"\n")
        child.stdin.flush()
        return child

    def _watch(self, rank: int, child: "subprocess.Popen[bytes]") -> None:
        status = child.wait()
        with self._lock:
            if self._is_ending or self.reason:
                return
            self.reason = f"rank {rank} of {self._size} ended with status {status}"
            callback = self._on_end
        if callback is not None:
            callback(self.reason)


def log_settings() -> dict[str, str]:
    """Format and level of this process's log, for the ranks."""
    root = logging.getLogger()
    is_json = any(type(handler.formatter).__name__ == "JsonFormatter" for handler in root.handlers)
    level = logging.getLevelName(root.getEffectiveLevel()).lower()
    return {"log_format": "json" if is_json else "console", "log_level": level}


def close_pipe(child: "subprocess.Popen[bytes]") -> None:
    """Lets the child see that it is to end."""
    assert child.stdin is not None
    try:
        child.stdin.close()
    except OSError:  # it ended before
        log.debug("rank process %d had ended", child.pid)
