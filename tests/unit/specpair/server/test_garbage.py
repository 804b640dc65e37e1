"""What the collector looks at once a process serves."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from specpair.server.garbage import THRESHOLDS, collect_only_new


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_only_what_is_made_later_is_looked_at() -> None:
    garbage, kept = weakref.ref(Node()), Node()
    collect_only_new()
    assert garbage() is None, "what is garbage already is not kept for good"
    old, new = weakref.ref(kept), weakref.ref(Node())
    del kept
    gc.collect()
    assert old() is not None
    assert new() is None
    assert gc.get_threshold() == THRESHOLDS


def test_nothing_is_left_when_the_process_ends() -> None:
    """Or a library in it prints dozens of lines about what it calls leaks."""
    program = """
from specpair.server.garbage import collect_only_new

class Node:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("gone")

kept = Node()
collect_only_new()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "gone\n"
