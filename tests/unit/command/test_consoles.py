"""Consoles with and without escape codes."""

import sys
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from command.consoles import console_on, has_colors
from command.pair.local_pair import announce


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


def colorful(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal on both outputs, with colours. Called by the test itself: pytest changes the outputs before it."""
    shown = Screen()
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize(("variable", "is_plain"), [("1", False), ("", True)], ids=["NO_COLOR", "--no-color"])
def test_a_plain_console_writes_no_escape_codes(
    monkeypatch: pytest.MonkeyPatch, is_error: bool, variable: str, is_plain: bool
) -> None:
    screen = colorful(monkeypatch)
    usual = console_on(is_error=is_error)
    assert has_colors(usual)
    monkeypatch.setenv("NO_COLOR", variable)
    plain = console_on(is_error=is_error, is_plain=is_plain)
    assert not has_colors(plain)
    for style in ("dim", "bold yellow", "strike"):
        plain.print("[green]text[/]", style=style)
    assert screen.getvalue() == "text\n" * 3
    usual.print("text", style="dim")
    assert "\x1b[2m" in screen.getvalue(), "the control: a console that is not plain"


@pytest.mark.parametrize("is_plain", [False, True])
async def test_services_are_announced_without_a_spinner_on_a_plain_console(
    monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    screen = colorful(monkeypatch)

    async def wait() -> float:
        return 2.5

    child: Any = SimpleNamespace(name="draft", address="127.0.0.1:1", wait_until_ready=wait)
    await announce([child], console_on(is_error=True, is_plain=is_plain))
    assert (screen.getvalue() == "draft ready after 2.5 s at 127.0.0.1:1\n") is is_plain
    assert "ready after" in screen.getvalue()
