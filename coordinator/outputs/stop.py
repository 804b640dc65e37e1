"""Stop strings: finds them across token borders and holds back text that may become one."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on up to the first stop string.

    The stop string that is complete first wins; of several that end at the same character, the longest. So the result
    depends on the text alone, not on how it was split into pieces.
    """

    def __init__(self, stop_strings: Sequence[str]):
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self._exempt_length = 0
        """Characters at the start of the held text where a complete stop string does not count."""
        self.is_stopped = False

    def push(self, text: str, *, may_stop: bool = True) -> str:
        """Adds text and returns what is certainly before any stop string; empty once `is_stopped`.

        A stop string that is completed while `may_stop` is False is ordinary text; one that has only begun counts when
        it is completed later.
        """
        if self.is_stopped:
            return ""
        if not self._stop_strings:
            return text
        self._held += text
        if not may_stop:
            self._exempt_length = len(self._held)
        end = self._first_stop()
        if end is None:
            end = len(self._held) - self._held_length()
        else:
            self.is_stopped = True
        piece, self._held = self._held[:end], self._held[end:]
        self._exempt_length = max(self._exempt_length - end, 0)
        return piece

    def flush(self) -> str:
        """The held text that did not become a stop string."""
        piece = "" if self.is_stopped else self._held
        self._held = ""
        return piece

    def _first_stop(self) -> int | None:
        """Where the winning stop string begins in the held text."""
        found = [(start + len(stop), start) for stop in self._stop_strings if (start := self._find(stop)) >= 0]
        return min(found)[1] if found else None

    def _find(self, stop: str) -> int:
        """Where the stop string first begins and ends after the exempt characters; -1 if nowhere."""
        return self._held.find(stop, max(self._exempt_length - len(stop) + 1, 0))

    def _held_length(self) -> int:
        """Length of the longest suffix of the held text that is a prefix of a stop string."""
        longest = min(max(map(len, self._stop_strings), default=0) - 1, len(self._held))
        ends = (self._held[len(self._held) - length :] for length in range(longest, 0, -1))
        return next((len(end) for end in ends if any(stop.startswith(end) for stop in self._stop_strings)), 0)
