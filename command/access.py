"""`--tls-ca`, `--token-file` and the like: how the commands that ask services get in."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from command.failures import friendly
from command.protection import FILE, SECURITY, channel_security
from specpair.security.settings import PLAIN, ChannelSecurity

TOKEN = "SPECPAIR_TOKEN"

_access: ContextVar[ChannelSecurity] = ContextVar("access", default=PLAIN)

OPTIONS = {
    "tls_ca": Annotated[
        str | None,
        typer.Option(
            "--tls-ca",
            envvar="SPECPAIR_TLS_CA",
            metavar=FILE,
            help="Speak TLS; the service's certificate must come from these authorities, or from those that are known "
            "everywhere: `system`.",
            rich_help_panel=SECURITY,
        ),
    ],
    "tls_cert": Annotated[
        str | None,
        typer.Option(
            "--tls-cert",
            envvar="SPECPAIR_TLS_CERT",
            metavar=FILE,
            help="Certificate to show, as PEM.",
            rich_help_panel=SECURITY,
        ),
    ],
    "tls_key": Annotated[
        str | None,
        typer.Option(
            "--tls-key",
            envvar="SPECPAIR_TLS_KEY",
            metavar=FILE,
            help="Its private key, as PEM without a password.",
            rich_help_panel=SECURITY,
        ),
    ],
    "tls_name": Annotated[
        str | None,
        typer.Option(
            "--tls-name",
            envvar="SPECPAIR_TLS_NAME",
            metavar="NAME",
            help="Name that the service's certificate must have; by default the host's.",
            rich_help_panel=SECURITY,
        ),
    ],
    "token_file": Annotated[
        str | None,
        typer.Option(
            "--token-file",
            envvar="SPECPAIR_TOKEN_FILE",
            metavar=FILE,
            help=f"File with the bearer token to show; or the token itself in {TOKEN}.",
            rich_help_panel=SECURITY,
        ),
    ],
}


def current_access() -> ChannelSecurity:
    """What the flags of the running command say."""
    return _access.get()


def make_accessing(app: typer.Typer, *names: str) -> None:
    """Gives the named commands of the app the options."""
    for command in app.registered_commands:
        if command.name in names:
            assert command.callback is not None
            command.callback = _with_options(command.callback)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name, None) for name in OPTIONS}
        _access.set(_read(given))
        command(*args, **kwargs)

    signature = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **OPTIONS}
    return run


@friendly
def _read(given: dict[str, str | None]) -> ChannelSecurity:
    return channel_security(**given, token_variable=TOKEN)
