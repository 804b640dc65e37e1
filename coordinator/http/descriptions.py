"""What `/openapi.json` says of answers; parameters describe themselves."""

from typing import Any

from pydantic import BaseModel, Field

Answers = dict[int | str, dict[str, Any]]
"""As FastAPI's `responses`: by status."""


class Problem(BaseModel):
    """What is wrong, as OpenAI has it."""

    message: str
    type: str = Field(description="The kind, by status: invalid_request_error for 400, rate_limit_error for 429.")
    param: str | None = Field(description="The parameter that is wrong.")
    code: str | None = Field(description="The kind for programs, such as context_length_exceeded.")


class ErrorDocument(BaseModel):
    """The body of an answer that is an error."""

    error: Problem


REFUSED: Answers = {"4XX": {"model": ErrorDocument, "description": "The request is refused, and `error` says why."}}
FAILED: Answers = {"5XX": {"model": ErrorDocument, "description": "The request failed; 503 may be tried again."}}

GENERATED: Answers = {
    200: {
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "The whole answer as JSON; with `stream` its chunks as events.",
    },
}
EXPOSED: Answers = {200: {"description": "Metrics in the text format of Prometheus or OpenMetrics."}}
HEALTH: Answers = {503: {"description": "No requests are served; the body is that of 200, or `error` says why."}}
