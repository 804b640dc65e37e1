"""Where a JSON value ends that stands inside of an object."""

import re

IN_STRING = re.compile(r'["\\]')
OUTSIDE = re.compile(r'["{}\[\]]')


class JsonEnd:
    """Follows the text of one value, which comes piece by piece, to the brace that ends the object around it."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = self._is_escaped = False
        self._has_marks = False
        """Whether anything in it was a quote or a bracket."""

    @property
    def is_whole(self) -> bool:
        """Whether the value has ended. A number or a word may go on, until the brace is there."""
        return self._has_marks and self._depth <= 0 and not self._is_in_string

    def find(self, piece: str) -> int | None:
        """Where in this piece, the next of the text, the object's brace is; None if it is not there yet."""
        place = 0
        while place < len(piece):
            if self._is_escaped:
                self._is_escaped, place = False, place + 1
                continue
            found = (IN_STRING if self._is_in_string else OUTSIDE).search(piece, place)
            if found is None:
                return None
            place = found.end()
            if self._follow(found[0]):
                return found.start()
        return None

    def _follow(self, letter: str) -> bool:
        """Takes a letter that means something; returns whether it is the brace."""
        self._has_marks = True
        if self._is_in_string:
            self._is_in_string, self._is_escaped = letter != '"', letter == "\\"
        elif letter == '"':
            self._is_in_string = True
        else:
            self._depth += 1 if letter in "{[" else -1
        return self._depth < 0
