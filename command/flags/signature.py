"""Parameters that a command has beside those that are written in its `def`."""

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, TypeVar

Command = Callable[..., None]
AnyCommand = TypeVar("AnyCommand", bound=Command)


def takes(*groups: Sequence[Parameter]) -> Callable[[AnyCommand], AnyCommand]:
    """A decorator: typer finds these parameters, and their values come to the command's `**` parameter.

    In the help they stand after the command's own positional ones and before its keyword-only ones.
    """

    def add(command: AnyCommand) -> AnyCommand:
        add_parameters(command, [parameter for group in groups for parameter in group], is_last=False)
        return command

    return add


def add_parameters(command: Command, added: Sequence[Parameter], *, is_last: bool = True) -> None:
    """Has typer find the parameters on the command, which has to take them."""
    own = [entry for entry in inspect.signature(command).parameters.values() if entry.kind is not Parameter.VAR_KEYWORD]
    first = [entry for entry in own if is_last or entry.kind is not Parameter.KEYWORD_ONLY]
    parameters = [*first, *added, *own[len(first) :]]
    shown: Any = command
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {entry.name: entry.annotation for entry in parameters}
