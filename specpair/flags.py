"""What a field of a configuration says about itself: its limits, and the flag that sets it on a command line.

Both stand in the field's `Annotated` type. `specpair.options.check_fields` checks the limits; the `specpair` command
makes its options from both. Plain data, so that a configuration knows no command line.
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
    """The limits of a number. A None, where the type allows it, is within all limits."""

    low: float
    high: float
    shown: Literal["low", "both", "none"] = "low"
    """Which limits the help shows, and the command line refuses by itself; the configuration refuses the rest."""


@dataclass(frozen=True)
class Flag:
    """How a field is set on a command line."""

    help: str
    """What the field is, in a sentence or two; `{peer}` is the other side of a connection, `{variable}` the
    environment variable with a token."""
    panel: str | None = None
    """Under which heading the help lists it."""
    name: str | None = None
    """Where the flag is not called after the field: the name of the flag, with underscores."""
    metavar: str | None = None
    """What stands for its value in the help; its type by default."""
    default_text: str | None = None
    """How the help writes a default of None that has a word."""
    parse: Callable[[str], Any] | None = None
    """The field's value of the text that is given. Raises ValueError with the reason."""
    convert: Callable[[Any], Any] | None = None
    """The field's value of what was given as `kind`."""
    kind: Any = None
    """What is given on the command line, where that is not of the field's type."""
    variables: tuple[str, ...] = ()
    """Environment variables that set it, beside that of its name."""


class Part(dict[str, Flag]):
    """Flags of a configuration within another one, by field; their names begin with that of the outer field."""


def listed(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word for entry in text.split(",") if (word := entry.strip()))
