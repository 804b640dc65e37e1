"""What the commands print on: standard output and standard error, plain where the person asked for it."""

import os

from rich.console import Console


def console_on(*, is_error: bool = False, is_plain: bool = False, width: int | None = None) -> Console:
    """A console on standard output, or on standard error if `is_error`.

    With `is_plain`, which is `--no-color`, or with NO_COLOR set it writes no escape codes: no style at all, where rich
    alone would keep bold and dim. Then standard error, where nothing but messages and spinners are shown, is taken for
    no terminal. Standard output stays one, since `top` repaints it and generated text is made safe for it.
    """
    is_plain = is_plain or bool(os.environ.get("NO_COLOR"))
    return Console(
        stderr=is_error,
        highlight=False,
        width=width,
        color_system=None if is_plain else "auto",
        force_terminal=False if is_plain and is_error else None,
    )


def has_colors(console: Console) -> bool:
    """Whether it is a terminal that may show colours."""
    return console.color_system is not None
