"""How many outputs wait for the draft, over time."""


class DraftActivity:
    """A count and its integral. Times are in seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._count = 0
        self._integral = 0.0
        self._last = 0.0

    def begin(self, now: float) -> None:
        """An output asks the draft."""
        self._advance(now)
        self._count += 1

    def end(self, now: float) -> None:
        """It has its answer, or gave up."""
        self._advance(now)
        self._count -= 1

    def integral(self, now: float) -> float:
        """Its difference between two times, over the time between them, is the mean number of outputs that waited."""
        self._advance(now)
        return self._integral

    def _advance(self, now: float) -> None:
        self._integral += self._count * (now - self._last)
        self._last = now
