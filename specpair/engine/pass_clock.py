"""Measures the time of forward passes, also on asynchronous devices.

On a GPU a call returns when its work is queued. A pass whose logits were read has ended; a pass that only feeds a
prompt may not even have begun. So the device records events at the beginning and end of each pass, which are read once
the pass is over. No thread waits for them.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

Record = Callable[[float], None]
"""Takes the seconds of a pass."""


class HostClock:
    """The clock for devices whose calls return when the work is done."""

    def __init__(self) -> None:
        self._started = 0.0

    def begin(self) -> None:
        """Starts timing a pass."""
        self._started = time.perf_counter()

    def end(self, record: Record) -> None:
        """Records a pass that has ended."""
        record(time.perf_counter() - self._started)

    def settle(self) -> None:
        """Does nothing: every pass is recorded already."""


class _Pass(NamedTuple):
    began: torch.cuda.Event
    ended: torch.cuda.Event
    record: Record


class CudaClock:
    """The clock for a GPU. A pass is recorded once it is known to be over: by `settle`, or when the next one begins.

    Device thread only.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._began: torch.cuda.Event | None = None
        self._open: deque[_Pass] = deque()

    def begin(self) -> None:
        """Starts timing a pass: all work queued from now on belongs to it."""
        self.settle()
        self._began = self._note()

    def end(self, record: Record) -> None:
        """Ends timing: all work of the pass is queued."""
        assert self._began is not None
        self._open.append(_Pass(self._began, self._note(), record))

    def settle(self) -> None:
        """Records the passes that are over, in order, without waiting."""
        while self._open and self._open[0].ended.query():
            done = self._open.popleft()
            done.record(done.began.elapsed_time(done.ended) * 1e-3)

    def _note(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def pass_clock(device: torch.device) -> HostClock | CudaClock:
    """The clock for passes on a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
