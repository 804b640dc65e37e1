"""Parameters of a command in addition to those in its `def`."""

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, TypeVar

Command = Callable[..., None]
AnyCommand = TypeVar("AnyCommand", bound=Command)


def takes(*groups: Sequence[Parameter]) -> Callable[[AnyCommand], AnyCommand]:
    """A decorator: typer sees these parameters, and their values go to the command's `**` parameter.

    The help lists them after the command's own positional parameters and before its keyword-only ones.
    """

    def add(command: AnyCommand) -> AnyCommand:
        add_parameters(command, [parameter for group in groups for parameter in group], is_last=False)
        return command

    return add


def add_parameters(command: Command, added: Sequence[Parameter], *, is_last: bool = True) -> None:
    """Makes typer see the parameters on the command, which must accept them."""
    own = [entry for entry in inspect.signature(command).parameters.values() if entry.kind is not Parameter.VAR_KEYWORD]
    first = [entry for entry in own if is_last or entry.kind is not Parameter.KEYWORD_ONLY]
    parameters = [*first, *added, *own[len(first) :]]
    shown: Any = command
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {entry.name: entry.annotation for entry in parameters}
