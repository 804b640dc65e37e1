"""Ctrl-C before a command has begun: while modules are imported and arguments are read.

Imports nothing that takes time, since it is there to be in place before everything else.
"""

import os
import signal
import sys

INTERRUPTED = 130
"""The status that shells report for a process ended by SIGINT."""


def is_starting() -> bool:
    """Whether this process is the command and no other program that imports it. While Python imports the package for
    `-m`, that is the name of the program."""
    return bool(sys.argv) and os.path.basename(sys.argv[0]) in ("specpair", "-m")


def end_on_interrupt() -> None:
    """From now on Ctrl-C ends the process at once, with one line. Not where it is ignored, as for a job in the
    background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)


def raise_on_interrupt() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt again, for a command that has something to clean up."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once(*_: object) -> None:
    """There is nothing to clean up yet. An exception would be one of whatever module is being imported, which may take
    it for a failure of its own."""
    os.write(2, b"specpair: interrupted\n")
    os._exit(INTERRUPTED)
