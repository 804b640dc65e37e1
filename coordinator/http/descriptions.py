"""What `/openapi.json` says of answers; parameters describe themselves."""

from typing import Any, Literal

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


class AnsweredFunction(BaseModel):
    """What the model calls."""

    name: str
    arguments: str = Field(description="JSON.")


class AnsweredCall(BaseModel):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredMessage(BaseModel):
    """What the model says. A stream's `delta` has parts of the same."""

    role: Literal["assistant"]
    content: str | None = Field(description="Null where calls or reasoning are all that there is.")
    refusal: None
    reasoning_content: str | None = Field(
        None, description="With --reasoning-parser: what the model thought before the content; null for nothing."
    )
    reasoning: str | None = Field(None, description="The same text, by vLLM's newer name.")
    tool_calls: list[AnsweredCall] | None = Field(None, description="Calls of the request's tools; left out for none.")


class ChatChoice(BaseModel):
    """One output."""

    index: int
    message: AnsweredMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    seed: int


class ChatAnswer(BaseModel):
    """The whole answer to a conversation; docs/http.md has the rest of it."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, Any]


class ReasoningText(BaseModel):
    """A part of what the model thought."""

    type: Literal["reasoning_text"]
    text: str


class AnsweredReasoning(BaseModel):
    """What the model thought, with --reasoning-parser."""

    type: Literal["reasoning"]
    id: str
    status: Literal["completed", "incomplete"]
    summary: list[Any]
    content: list[ReasoningText]


class OutputText(BaseModel):
    """A part of what the model says."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[dict[str, Any]] = Field(description="Empty unless asked for.")


class AnsweredText(BaseModel):
    """What the model says."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: Literal["completed", "incomplete"]
    content: list[OutputText]


class AnsweredFunctionCall(BaseModel):
    """A call of a function."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str = Field(description="JSON.")
    status: Literal["completed", "incomplete"]


class IncompleteDetails(BaseModel):
    """Why the output is not complete."""

    reason: Literal["max_output_tokens"]


class ResponseDocument(BaseModel):
    """A whole response; docs/http.md has the rest of it."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    incomplete_details: IncompleteDetails | None
    error: None
    output: list[AnsweredReasoning | AnsweredText | AnsweredFunctionCall]
    usage: dict[str, Any]
    seed: int
    store: Literal[False]


REFUSED: Answers = {"4XX": {"model": ErrorDocument, "description": "The request is refused, and `error` says why."}}
FAILED: Answers = {"5XX": {"model": ErrorDocument, "description": "The request failed; 503 may be tried again."}}

GENERATED: Answers = {
    200: {
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "The whole answer as JSON; with `stream` its chunks as events.",
    },
}
CHATTED: Answers = {200: {**GENERATED[200], "model": ChatAnswer}}
RESPONDED: Answers = {200: {**GENERATED[200], "model": ResponseDocument}}
EXPOSED: Answers = {200: {"description": "Metrics in the text format of Prometheus or OpenMetrics."}}
HEALTH: Answers = {503: {"description": "No requests are served; the body is that of 200, or `error` says why."}}
