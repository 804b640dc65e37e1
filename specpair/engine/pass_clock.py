"""How long forward passes take, also on devices that work behind the back of the thread that feeds them.

On a GPU a call returns when its work is queued. A pass whose logits are looked at has ended by then; one that only
feeds a prompt may not have begun. So the device itself notes when it begins and ends a pass, and the notes are read
once it has: nobody ever waits for it.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

Record = Callable[[float], None]
"""Takes the seconds of a pass."""


class HostClock:
    """For devices whose calls return when the work is done."""

    def __init__(self) -> None:
        self._started = 0.0

    def begin(self) -> None:
        """A pass begins."""
        self._started = time.perf_counter()

    def end(self, record: Record) -> None:
        """It has ended."""
        record(time.perf_counter() - self._started)

    def settle(self) -> None:
        """Nothing is left to be recorded."""


class _Pass(NamedTuple):
    began: torch.cuda.Event
    ended: torch.cuda.Event
    record: Record


class CudaClock:
    """For a GPU. A pass is recorded when it is known to be over: by `settle`, or when the next one begins.

    Device thread only.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._began: torch.cuda.Event | None = None
        self._open: deque[_Pass] = deque()

    def begin(self) -> None:
        """A pass begins: everything queued from here on belongs to it."""
        self.settle()
        self._began = self._note()

    def end(self, record: Record) -> None:
        """Everything that belongs to it is queued."""
        assert self._began is not None
        self._open.append(_Pass(self._began, self._note(), record))

    def settle(self) -> None:
        """Records the passes that are over, in their order. Waits for none."""
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
