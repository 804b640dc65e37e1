"""What `specpair up` prints of its services."""

import re
from io import StringIO

from rich.console import Console

from command.pair.local_pair import line_printer


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
