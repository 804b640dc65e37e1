"""What is made from files, and made again when they change: certificates and tokens are replaced while services run."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from specpair.errors import InvalidFieldError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
Stamp = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles(Generic[Value]):
    """A value and the files that it is made from. May be asked from any thread.

    Files are looked at when the value is asked for: a stat takes microseconds, and nothing has to run in between. Where
    what changed cannot be used, as while a key is there and its certificate is not, the value before it goes on.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], Value]):
        """`load` raises InvalidFieldError for files that cannot be used, and so does this."""
        self._paths = paths
        self._load = load
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._value = load()

    def current(self) -> Value:
        """The value of the files as they are; the same object until they change."""
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp  # from before it is read: a change meanwhile is seen the next time
                self._read_again()
            return self._value

    def _read_again(self) -> None:
        try:
            self._value = self._load()
        except InvalidFieldError as error:
            logger.error("a changed file is not used, what it held before stays: %s", error.message)
        else:
            logger.info("read again: %s", ", ".join(self._paths))

    def _look(self) -> Stamp:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Changes with the file, and when another one takes its place; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_secret_file(field: str, path: str) -> bytes:
    """The bytes of a file. Raises InvalidFieldError, which names the file and nothing of what is in it."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidFieldError(field, f"{path} cannot be read: {error.strerror}") from None
