"""Sets up Python's garbage collector for a process that serves."""

import atexit
import gc

THRESHOLDS = (50_000, 10, 10)
"""New objects after which the young ones are searched for cycles, and how often until older ones are. A round of 256
outputs makes some ten thousand objects, which are gone soon after: by default it would be interrupted many times, for
7 to 20 ms each."""


def collect_only_new() -> None:
    """From now on collections look only at what is made later. Call it once everything is loaded.

    A target has 400,000 objects then, most of them of its libraries. A full collection looks at each of them while
    every call waits: a quarter of a second. At the end all is looked at again: libraries such as Triton complain about
    objects that are left.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(*THRESHOLDS)
