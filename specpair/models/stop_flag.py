"""A flag by which one thread asks another to stop, also in compiled code."""

from ctypes import addressof, c_int64


class StopFlag:
    """Set by any thread. Compiled code reads the int64 at `address`: 0, or 1 once it is set."""

    def __init__(self) -> None:
        self._number = c_int64(0)
        self.address = addressof(self._number)

    def set(self) -> None:
        self._number.value = 1

    def clear(self) -> None:
        self._number.value = 0
