"""`--otel`: OpenTelemetry traces of commands that take part in requests."""

import functools
import os
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import typer

from command.failures import friendly
from command.flags.signature import Command, add_parameters
from specpair.tracing import span, tracing

ENVIRONMENT_VARIABLE = "SPECPAIR_OTEL"

OtelOption = Annotated[
    bool,
    typer.Option(
        "--otel",
        envvar=ENVIRONMENT_VARIABLE,
        help="Send OpenTelemetry traces as OTEL_* variables say; by default to localhost:4317. Needs specpair[otel].",
    ),
]


def traced_service(name: str, command: Command) -> Command:
    """A serving command with the option."""

    def run(*args: Any, **kwargs: Any) -> None:
        with tracing(f"specpair-{name}"):
            command(*args, **kwargs)

    return _with_option(command, run)


def traced_client(name: str, command: Command) -> Command:
    """A client command with the option: the whole command is one span."""

    def run(*args: Any, **kwargs: Any) -> None:
        with tracing("specpair-client"), span(name, "client"):
            command(*args, **kwargs)

    return _with_option(command, run)


def traced_parent(name: str, command: Command) -> Command:
    """A command that starts services, with the option: an environment variable makes the services trace."""

    def run(*args: Any, **kwargs: Any) -> None:
        os.environ[ENVIRONMENT_VARIABLE] = "1"
        command(*args, **kwargs)

    return _with_option(command, run)


def _with_option(command: Command, traced: Command) -> Command:
    @functools.wraps(command)
    def run(*args: Any, otel: bool = False, **kwargs: Any) -> None:
        (friendly(traced) if otel else command)(*args, **kwargs)

    add_parameters(run, [Parameter("otel", Parameter.KEYWORD_ONLY, default=False, annotation=OtelOption)])
    return run


def make_traceable(app: typer.Typer, trace: Callable[[str, Command], Command], *names: str) -> None:
    """Adds the option to the named commands of the app; `trace` gets the name and the command."""
    for command in app.registered_commands:
        if command.name in names:
            assert command.callback is not None
            command.callback = trace(command.name, command.callback)
