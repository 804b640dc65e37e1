"""Limits of a configuration field, and the command line flag that sets it.

Both are part of the field's `Annotated` type. `specpair.options.check_fields` checks the limits; the `specpair` command
makes its options from both. Plain data, so that configurations do not depend on the command line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

LISTENING = "Listening"
MODEL = "Model"
SPECULATION = "Speculation"
SECURITY = "Security"
LOGGING = "Logging"


class Range(NamedTuple):
    """The limits of a number. None is always within the limits, if the type allows it."""

    low: float
    high: float
    shown: Literal["low", "both", "none"] = "low"
    """Which limits the help shows and the command line checks. The configuration checks all of them."""


@dataclass(frozen=True)
class Flag:
    """How the command line sets a field."""

    help: str
    """The help text, one or two sentences; `{peer}` is the other side of a connection, `{variable}` the environment
    variable with a token."""
    panel: str | None = None
    """The heading under which the help lists the flag."""
    name: str | None = None
    """The flag's name, with underscores, if it differs from the field's."""
    metavar: str | None = None
    """Placeholder for the value in the help; by default the type."""
    default_text: str | None = None
    """How the help shows a default of None."""
    parse: Callable[[str], Any] | None = None
    """Converts the given text to the field's value. Raises ValueError with the reason."""
    convert: Callable[[Any], Any] | None = None
    """Converts a value of type `kind` to the field's value."""
    kind: Any = None
    """Type of the value on the command line, if it differs from the field's type."""
    variables: tuple[str, ...] = ()
    """Environment variables that set the field, in addition to the one named after it."""


class Part(dict[str, Flag]):
    """Flags of a nested configuration, by field. Their names begin with the name of the outer field."""


def listed(text: str) -> tuple[str, ...]:
    """Splits text at commas."""
    return tuple(word for entry in text.split(",") if (word := entry.strip()))
