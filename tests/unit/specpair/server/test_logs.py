import json
import logging
from datetime import datetime

import pytest

from specpair.server.config import LogFormat
from specpair.server.logs import configure_logging

logger = logging.getLogger("specpair.test")


def log_line(capsys: pytest.CaptureFixture[str], log_format: LogFormat, **extra: object) -> str:
    configure_logging(log_format, "info")
    logger.info("opened %s", "abc", extra=extra)
    return capsys.readouterr().err


def test_console_line_shows_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    line = log_line(capsys, "console", tokens=7)
    day, time, _ = line.split(" ", 2)
    assert datetime.fromisoformat(f"{day} {time}").tzinfo is not None
    assert line.endswith("INFO    specpair.test: opened abc tokens=7\n")


def test_json_line_is_one_object_with_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(log_line(capsys, "json", tokens=7, path={1}))
    assert datetime.fromisoformat(entry.pop("time")).tzinfo is not None
    assert entry == {
        "level": "info",
        "logger": "specpair.test",
        "message": "opened abc",
        "tokens": 7,
        "path": "{1}",
    }


def test_json_line_keeps_a_traceback_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logger.exception("failed")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "RuntimeError: broken" in json.loads(lines[0])["exception"]


def test_level_holds_and_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "debug")
    configure_logging("console", "warning")
    logger.info("quiet")
    logger.warning("loud")
    assert capsys.readouterr().err.count("\n") == 1
