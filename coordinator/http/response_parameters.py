"""The body of /v1/responses: OpenAI's parameters, and those of chat that have a meaning here."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from coordinator.http.input_items import Input
from coordinator.http.parameters import GenerationParameters, LayoutParameters, Text, Uint32, check_text, described
from coordinator.http.refusals import INVALID_VALUE, not_here, one_of, refusal
from coordinator.http.structure_parameters import (
    MAX_TOOLS,
    NAME,
    FunctionDefinition,
    FunctionName,
    ResponseFormat,
    Schema,
)
from specpair.options import MAX_LOGPROBS

LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
MAX_PAIRS, MAX_KEY_LENGTH, MAX_VALUE_LENGTH = 16, 64, 512
"""OpenAI's limits of `metadata`."""


class TextFormat(BaseModel):
    """OpenAI's `text.format`. The schema is followed whatever `strict` says."""

    model_config = ConfigDict(protected_namespaces=(), populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(None, pattern=NAME)
    content: Schema | None = Field(None, alias="schema", description="Of a json_schema.")
    description: str | None = None
    strict: bool | None = None


class TextParameters(BaseModel):
    """OpenAI's `text`."""

    format: TextFormat | None = None


class ToolKind(BaseModel):
    """Of which type a tool is."""

    type: Annotated[
        Literal["function"], one_of(INVALID_VALUE, "must be function; tools that the server would run are not here")
    ]


class FunctionTool(FunctionDefinition, ToolKind):  # the type is looked at first, as of the base that is named last
    """A function that the model may call."""


class FunctionChoice(FunctionName):
    """The one function to call."""

    type: Literal["function"] = "function"


class AllowedFunctions(BaseModel):
    """Some of the functions, and whether one of these must be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[FunctionChoice] = Field(min_length=1, max_length=MAX_TOOLS)


FunctionToolChoice = Annotated[
    Literal["none", "auto", "required"] | FunctionChoice | AllowedFunctions,
    one_of(
        INVALID_VALUE,
        'must be none, auto or required, name a function: {"type": "function", "name": ...}, or name some: '
        '{"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}',
    ),
]
Include = Annotated[
    Literal["message.output_text.logprobs", "reasoning.encrypted_content"],
    one_of(INVALID_VALUE, f"must be {LOGPROBS} or {ENCRYPTED}"),
]
NOT_SUPPORTED: Any = Field(None, description="Not supported; null.")


def read_metadata(value: Any) -> dict[str, str]:
    """Counted before it is looked at, and no key is in the message: they may be many, and long."""
    if not isinstance(value, dict) or len(value) > MAX_PAIRS:
        raise refusal("metadata", f"must be an object of at most {MAX_PAIRS} texts by their names")
    for limit, what, texts in ((MAX_KEY_LENGTH, "name", value), (MAX_VALUE_LENGTH, "text", value.values())):
        if not all(isinstance(text, str) and len(check_text(text)) <= limit for text in texts):
            raise refusal(INVALID_VALUE, f"has a {what} that is no text of at most {limit} characters")
    return value


Metadata = Annotated[dict[str, str], PlainValidator(read_metadata, json_schema_input_type=dict[str, str])]


class ResponseParameters(GenerationParameters, LayoutParameters):
    """The body of /v1/responses."""

    input: Input = Field(description="A text, or the items of a conversation.")
    instructions: Text | None = Field(None, description="A system message before the input.")
    max_output_tokens: Uint32 | None = Field(None, description="Default: as many as fit the model.")
    text: TextParameters | None = Field(None, description="What the output has to look like.")
    tools: list[FunctionTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: FunctionToolChoice | None = Field(None, description="Default auto if there are tools.")
    parallel_tool_calls: bool | None = Field(None, description="Whether several calls may come at once. Default true.")
    include: Annotated[list[Include], Field(max_length=8, fail_fast=True)] | None = Field(
        None, description=f"{LOGPROBS} for logprobs. Reasoning comes as text, with {ENCRYPTED} too."
    )
    top_logprobs: Uint32 | None = described(0, MAX_LOGPROBS, "For each token, this many of the likeliest.")
    truncation: (
        Annotated[Literal["disabled"], one_of(INVALID_VALUE, "must be disabled; an input that is too long is refused")]
        | None
    ) = None
    metadata: Metadata | None = Field(None, description="Comes back with the response.")
    user: Text | None = Field(None, description="Comes back with the response.")
    store: bool | None = Field(None, description="Nothing is stored, whatever it says.")

    n: Annotated[int, Field(ge=1, le=1)] | None = Field(None, description="A response has one output.")
    max_tokens: Annotated[Uint32, not_here("; use max_output_tokens")] | None = NOT_SUPPORTED
    max_completion_tokens: Annotated[Uint32, not_here("; use max_output_tokens")] | None = NOT_SUPPORTED
    logprobs: Annotated[Any, not_here(f"; use include with {LOGPROBS}, or top_logprobs")] = NOT_SUPPORTED
    echo: Annotated[Any, not_here()] = NOT_SUPPORTED
    response_format: Annotated[ResponseFormat, not_here("; use text.format")] | None = NOT_SUPPORTED
    prompt_logprobs: Annotated[Uint32, not_here()] | None = NOT_SUPPORTED
    background: Annotated[bool, not_here()] | None = NOT_SUPPORTED
    previous_response_id: Annotated[Any, not_here(": responses are not stored; send the earlier items in input")] = (
        NOT_SUPPORTED
    )
    conversation: Annotated[Any, not_here(": conversations are not stored; send their items in input")] = NOT_SUPPORTED
    prompt: Annotated[Any, not_here(": templates are not stored; send instructions and input")] = NOT_SUPPORTED
