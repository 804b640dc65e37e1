"""`--tls-ca`, `--token-file` and the other options with which commands access services."""

import functools
import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import typer

from command.failures import friendly
from command.flags.option import VARIABLE, configured, options, parameters
from command.flags.signature import Command, add_parameters
from specpair.security.settings import PLAIN, ChannelSecurity

TOKEN = f"{VARIABLE}TOKEN"
OPTIONS = options(ChannelSecurity)

_access: ContextVar[ChannelSecurity] = ContextVar("access", default=PLAIN)


def channel_security(values: Mapping[str, Any], prefix: str = "") -> ChannelSecurity:
    """The options; without a token file, the token comes from the environment. Raises InvalidFieldError.

    A token is never an argument: every user of a machine sees the arguments of every process.
    """
    has_file = values[f"{prefix}token_file"] is not None
    token = None if has_file else os.environ.get(f"{VARIABLE}{prefix.upper()}TOKEN") or None
    return configured(ChannelSecurity, values, prefix, token=token)


def current_access() -> ChannelSecurity:
    """The access options of the running command."""
    return _access.get()


def make_accessing(app: typer.Typer, *names: str) -> None:
    """Adds the options to the named commands of the app."""
    for command in app.registered_commands:
        if command.name in names:
            assert command.callback is not None
            command.callback = _with_options(command.callback)


def _with_options(command: Command) -> Command:
    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        _access.set(friendly(channel_security)({name: kwargs.pop(name, None) for name in OPTIONS}))
        command(*args, **kwargs)

    add_parameters(run, parameters(OPTIONS))
    return run
