"""What a person sees when a command fails: one line on standard error, no traceback."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

import typer

from command.generation.flag_names import in_flags
from command.interrupts import INTERRUPTED, raise_on_interrupt
from specpair.errors import InvalidFieldError, NotSupportedError, SpecpairError

FAILED = 1
WRONG_USE = 2
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""A full disk, a quota, a limit of files, a device or terminal that is gone."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class CommandError(Exception):
    """A command cannot go on, for a reason that the person at the terminal can act on."""

    def __init__(self, message: str, status: int = FAILED):
        super().__init__(message)
        self.status = status


def friendly(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A command that fails with one line and an exit status: 2 for wrong values, 1 for all other expected errors."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        raise_on_interrupt()
        try:
            return command(*args, **kwargs)
        except (InvalidFieldError, NotSupportedError) as error:
            raise _end(in_flags(error.message, kwargs), WRONG_USE) from None
        except SpecpairError as error:
            raise _end(error.message, FAILED) from None
        except CommandError as error:
            raise _end(str(error), error.status) from None
        except BrokenPipeError:  # the reader of the pipe has gone, as `head` does: nobody would read a message
            _drop_output()
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise _end("interrupted", INTERRUPTED) from None

    return run


def end_unwritten(error: OSError) -> NoReturn:
    """Ends the process with one line if the error is of an output that has no room. Raises other errors again."""
    if error.errno not in UNWRITABLE:
        raise error
    _drop_output()
    typer.echo(f"specpair: the output cannot be written: {error.strerror}", err=True)
    raise SystemExit(FAILED)


def _drop_output() -> None:
    """Lets what standard output still holds go nowhere: Python writes it at exit, and would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(message: str, status: int) -> typer.Exit:
    typer.echo(f"specpair: {message}", err=True)
    return typer.Exit(status)
