"""Stop strings: finding them across token borders, and holding back what may become one."""

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the first stop string.

    The stop string that is complete first wins; of several that end at the same character, the longest. So the
    outcome depends on the text alone, not on how it was cut into pieces.
    """

    def __init__(self, stop_strings: Sequence[str]):
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """The text that is certain to be before any stop string. Nothing comes after `is_stopped`."""
        if self.is_stopped:
            return ""
        self._held += text
        end = self._first_stop()
        if end is None:
            end = len(self._held) - self._held_length()
        else:
            self.is_stopped = True
        piece, self._held = self._held[:end], self._held[end:]
        return piece

    def flush(self) -> str:
        """What was held back and did not become a stop string."""
        piece = "" if self.is_stopped else self._held
        self._held = ""
        return piece

    def _first_stop(self) -> int | None:
        """Where the winning stop string begins in the held text."""
        found = [(start + len(stop), start) for stop in self._stop_strings if (start := self._held.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _held_length(self) -> int:
        """Length of the longest end of the held text with which a stop string begins."""
        longest = min(max(map(len, self._stop_strings), default=0) - 1, len(self._held))
        ends = (self._held[len(self._held) - length :] for length in range(longest, 0, -1))
        return next((len(end) for end in ends if any(stop.startswith(end) for stop in self._stop_strings)), 0)
