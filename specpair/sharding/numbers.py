"""Lists within a list of integers: each is preceded by its length."""

from collections.abc import Sequence


def write_list(numbers: Sequence[int]) -> list[int]:
    """The list, preceded by its length."""
    return [len(numbers), *numbers]


class NumberReader:
    """Reads what `write_list` and single numbers made, in order. Raises ValueError where there is too little."""

    def __init__(self, numbers: list[int]):
        self._numbers = numbers
        self._next = 0

    def number(self) -> int:
        return self._take(1)[0]

    def numbers(self) -> list[int]:
        return self._take(self.number())

    def numbers_or_none(self) -> list[int] | None:
        """The list, or None where its length is -1."""
        count = self.number()
        return None if count == -1 else self._take(count)

    def finish(self) -> None:
        """Raises ValueError unless everything has been read."""
        if self._next != len(self._numbers):
            raise ValueError(f"{len(self._numbers) - self._next} numbers too many")

    def _take(self, count: int) -> list[int]:
        end = self._next + count
        if not self._next <= end <= len(self._numbers):
            raise ValueError(f"{count} numbers wanted, {len(self._numbers) - self._next} there")
        taken = self._numbers[self._next : end]
        self._next = end
        return taken
