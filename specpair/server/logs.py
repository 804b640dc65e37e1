"""Log lines for people (console) or programs (one JSON object per line); `extra` fields appear in both."""

import json
import logging
import sys
from datetime import UTC, datetime

from specpair.server.config import LogFormat, LogLevel

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Sends the log of the whole process to standard error. Replaces any earlier configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class ConsoleFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.000+01:00 INFO    specpair.server.server: message key=value`, in local time."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created).astimezone().isoformat(sep=" ", timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:
        pairs = [f"{key}={value}" for key, value in extra_fields(record).items()]
        return " ".join([super().formatMessage(record), *pairs])


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, extra fields, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= extra_fields(record)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields that the caller passed as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}
