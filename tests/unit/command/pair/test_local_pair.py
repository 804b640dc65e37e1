"""What `specpair up` prints of its services."""

import asyncio
import os
import re
import signal
from io import StringIO

import pytest
from rich.console import Console

from command.pair.local_pair import cancel_on_signals, line_printer


def test_a_line_that_is_logged_beside_the_spinner_keeps_the_name_of_its_service() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, width=200)
    with console.status("loading the models"):
        line_printer(console)("coordinator", "[info] listening :smile:")
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row).split("\r")[-1] for row in screen.getvalue().split("\n")]
    assert "coordinator │ [info] listening :smile:" in shown


def test_a_long_line_is_not_broken() -> None:
    screen = StringIO()
    line_printer(Console(file=screen, width=40))("draft", "x" * 100)
    assert screen.getvalue() == f"      draft │ {'x' * 100}\n"


async def test_the_first_signal_says_what_a_second_one_does() -> None:
    screen = StringIO()

    async def work() -> None:
        cancel_on_signals(Console(file=screen))
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(20)

    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert screen.getvalue() == "stopping; Ctrl-C again ends everything at once\n"
