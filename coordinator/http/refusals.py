"""Errors of our own in the checks that pydantic makes of a body."""

from typing import Any, LiteralString, cast

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

INVALID_VALUE, INVALID_TYPE = "invalid_value", "invalid_type"
"""Codes, of which INVALID_VALUE is also the kind of a refusal; all other kinds have the code INVALID_TYPE."""


def refusal(kind: str, problem: str) -> PydanticCustomError:
    """The error that a validator raises, with `problem` as its message."""
    return PydanticCustomError(cast(LiteralString, kind), "{problem}", {"problem": problem})


def one_of(kind: str, problem: str) -> WrapValidator:
    """For a parameter of several types: one message, instead of pydantic's for each of the types."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise refusal(kind, problem) from None

    return WrapValidator(validate)
