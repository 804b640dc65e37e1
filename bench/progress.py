"""Progress on standard error: standard output belongs to results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINES_BETWEEN = 20
"""Without a terminal, one line is written per this many steps."""


class Progress:
    """Shows the progress of long work: a bar on a terminal, otherwise a line from time to time."""

    def __init__(self, console: Console | None = None):
        self.console = Console(stderr=True, highlight=False) if console is None else console

    def say(self, text: str) -> None:
        self.console.print(text)

    @contextmanager
    def over(self, total: int, noun: str) -> Iterator[Callable[[str], None]]:
        """A function to call at the beginning of each of `total` steps, with a description of the step."""
        columns = (
            MofNCompleteColumn(),
            TextColumn(noun),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        done = 0
        with Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task("", total=total)

            def advance(text: str) -> None:
                nonlocal done
                bar.update(task, completed=done, description=text)
                if not self.console.is_terminal and done % LINES_BETWEEN == 0:
                    self.console.print(f"{done} of {total} {noun}: {text}")
                done += 1

            yield advance
