"""Where a JSON value ends that stands inside of an object."""


class JsonEnd:
    """Follows the text of one value, which comes piece by piece, to the brace that ends the object around it."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = self._is_escaped = False

    def find(self, piece: str) -> int | None:
        """Where in this piece, the next of the text, the object's brace is; None if it is not there yet."""
        for place, letter in enumerate(piece):
            if self._is_in_string:
                self._follow_string(letter)
            elif letter == '"':
                self._is_in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth < 0:
                    return place
        return None

    def _follow_string(self, letter: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == "\\":
            self._is_escaped = True
        elif letter == '"':
            self._is_in_string = False
