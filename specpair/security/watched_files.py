"""Reloads values from files when the files change: certificates and tokens are replaced while services run."""

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
    """A value and the files that it is loaded from. Thread-safe.

    Files are checked each time the value is read: a stat takes microseconds, and no background task is needed. If the
    changed files are unusable, such as a new key whose certificate is not there yet, the previous value stays.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], Value]):
        """Loads the value. `load` raises InvalidFieldError for unusable files, and so does this."""
        self._paths = paths
        self._load = load
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._value = load()

    def current(self) -> Value:
        """The value for the current files; the same object until they change."""
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp  # taken before reading, so that a later change is noticed next time
                self._read_again()
            return self._value

    def _read_again(self) -> None:
        try:
            self._value = self._load()
        except InvalidFieldError as error:
            logger.error("a changed file is unusable, keeping its previous content: %s", error.message)
        else:
            logger.info("reloaded: %s", ", ".join(self._paths))

    def _look(self) -> Stamp:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Identifies a version of the file, or of a file that replaced it; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_secret_file(field: str, path: str) -> bytes:
    """The bytes of a file. Raises InvalidFieldError, which names the file but not its content."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidFieldError(field, f"{path} cannot be read: {error.strerror}") from None
