"""Errors of our own in the checks that pydantic makes of a body."""

from collections.abc import Sequence
from typing import Any, LiteralString, cast

from pydantic import BeforeValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

INVALID_VALUE, INVALID_TYPE = "invalid_value", "invalid_type"
"""Codes, of which INVALID_VALUE is also the kind of a refusal; all other kinds have the code INVALID_TYPE."""

KIND_MARK = "type="
"""Begins the tag of a type among several, which pydantic writes into the place of an error though no body has it."""


def place_name(location: Sequence[int | str]) -> str:
    """The place of an error as OpenAI writes it: `messages[0].role`."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif not part.startswith(KIND_MARK):
            name += f".{part}" if name else part
    return name


def refusal(kind: str, problem: str) -> PydanticCustomError:
    """The error that a validator raises, with `problem` as its message."""
    return PydanticCustomError(cast(LiteralString, kind), "{problem}", {"problem": problem})


def is_given(value: object) -> bool:
    """Whether a parameter asks for anything."""
    return value not in (None, "", []) and value is not False


def not_here(instead: str = "") -> BeforeValidator:
    """For a parameter that is refused if it asks for anything. The message ends with what to do `instead`."""

    def validate(value: Any) -> Any:
        if is_given(value):
            raise refusal(INVALID_VALUE, f"is not supported{instead}")
        return value

    return BeforeValidator(validate)


def one_of(kind: str, problem: str) -> WrapValidator:
    """For a parameter of several types: one message, instead of pydantic's for each of the types."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise refusal(kind, problem) from None

    return WrapValidator(validate)
