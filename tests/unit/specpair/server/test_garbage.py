"""What the collector looks at once a process serves."""

import subprocess
import sys

PROGRAM = """
import gc, weakref
from specpair.server.garbage import THRESHOLDS, collect_only_new

class Node:
    def __init__(self):
        self.itself = self

"""


def ends_well(program: str) -> str:
    """What it prints. What it keeps is kept in a process of its own."""
    command = [sys.executable, "-c", PROGRAM + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_only_what_is_made_later_is_looked_at() -> None:
    printed = ends_well("""
garbage, kept = weakref.ref(Node()), Node()
collect_only_new()
print("garbage", garbage() is None)
old, new = weakref.ref(kept), weakref.ref(Node())
del kept
gc.collect()
print("old", old() is None)
print("new", new() is None)
print(gc.get_threshold() == THRESHOLDS)
""")
    assert printed == "garbage True\nold False\nnew True\nTrue\n", "what is garbage already is not kept for good"


def test_nothing_is_left_when_the_process_ends() -> None:
    """Or a library in it prints dozens of lines about what it calls leaks."""
    printed = ends_well("""
Node.__del__ = lambda node: print("gone")
kept = Node()
collect_only_new()
""")
    assert printed == "gone\n"
