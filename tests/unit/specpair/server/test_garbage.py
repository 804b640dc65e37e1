"""What the collector looks at once a process serves."""

import gc
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
    gc.unfreeze()


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
