"""A body that is wrong in many places is refused for one: errors are made before anything is admitted."""

from typing import Any

import pytest
from pydantic import ValidationError

from coordinator.http.response_parameters import ResponseParameters

MANY = 100_000


@pytest.mark.parametrize(
    "body",
    [
        {"input": [{"type": "reasoning", "content": [0] * 4096}]},
        {"input": [{"type": "reasoning", "content": [0] * MANY}]},
        {"input": [{"type": "reasoning", "summary": [0] * MANY}]},
        {"input": [0] * MANY},
        {"input": "x", "metadata": {str(number): 0 for number in range(MANY)}},
        {"input": "x", "metadata": {"k" * MANY: "x"}},
        {"input": "x", "include": [0] * MANY},
    ],
    ids=["parts", "many parts", "summary", "items", "metadata", "a long name", "include"],
)
def test_one_error_is_made(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ResponseParameters.model_validate(body)
    (error,) = caught.value.errors(include_input=False, include_context=False)
    assert len(str(error["loc"]) + error["msg"]) < 400
