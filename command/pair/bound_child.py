"""`python -m command.pair.bound_child PID ...`: the specpair command as a child that does not outlive the process PID.

A parent that is killed with SIGKILL cannot stop its children. On Linux the kernel then sends them SIGTERM; on other
systems they keep running.
"""

import ctypes
import os
import signal
import sys

from command.main import app

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when the thread that started it ends."""


def end_with_parent(parent: int) -> None:
    """Makes the kernel end this process together with its parent, which may already be dead."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"the process {parent} that started this one is gone")


if __name__ == "__main__":
    end_with_parent(int(sys.argv.pop(1)))
    app(prog_name="specpair")
