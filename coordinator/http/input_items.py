"""The items of a conversation, as the body of /v1/responses has them: those of earlier answers among them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from coordinator.http.parameters import Text, joined
from coordinator.http.refusals import INVALID_TYPE, INVALID_VALUE, KIND_MARK, refusal
from coordinator.http.structure_parameters import NAME
from coordinator.requests.chat import MAX_CHAT_MESSAGES

KINDS = ("message", "function_call", "function_call_output", "reasoning")
PART_KINDS = ("input_text", "output_text")


def join_item_parts(value: Any) -> Any:
    """The text of an item's content. Only text parts are allowed: no images, files or refusals."""
    return joined(value, PART_KINDS)


def read_input(value: Any) -> Any:
    """A text is a message of the user's."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise refusal(INVALID_TYPE, "must be a text or a list of items")
    return value


def kind_of(item: Any) -> str:
    """The tag of an item's type; one without a type is a message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    return tag(kind) if isinstance(kind, str) else ""


def tag(kind: str) -> str:
    return KIND_MARK + kind


class ContentPart(BaseModel):
    """A part of a content."""

    type: Literal["input_text", "output_text"]
    text: Text


Content = Annotated[Text, BeforeValidator(join_item_parts, json_schema_input_type=str | list[ContentPart])]


class InputMessage(BaseModel):
    """What somebody said."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class InputCall(BaseModel):
    """A function that the model called."""

    type: Literal["function_call"]
    call_id: Text
    name: str = Field(pattern=NAME)
    arguments: Text = Field(description="JSON.")


class InputCallOutput(BaseModel):
    """What a called function answered."""

    type: Literal["function_call_output"]
    call_id: Text
    output: Content


class ReasoningPart(BaseModel):
    """A part of the model's reasoning."""

    type: Literal["reasoning_text"]
    text: Text


class SummaryPart(BaseModel):
    """A part of what another server said of the model's reasoning."""

    type: Literal["summary_text"]
    text: Text


FEW_PARTS = Field(max_length=MAX_CHAT_MESSAGES, fail_fast=True)
"""A long list of what is no part would be as many errors, made on the event loop."""


class InputReasoning(BaseModel):
    """What the model thought before what it said or called. `encrypted_content` of another server is ignored."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningPart], FEW_PARTS] | None = None
    summary: Annotated[list[SummaryPart], FEW_PARTS] | None = Field(
        None, description="Taken where there is no content."
    )

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content or self.summary or ())


InputItem = Annotated[
    Annotated[InputMessage, Tag(tag("message"))]
    | Annotated[InputCall, Tag(tag("function_call"))]
    | Annotated[InputCallOutput, Tag(tag("function_call_output"))]
    | Annotated[InputReasoning, Tag(tag("reasoning"))],
    Discriminator(
        kind_of,
        custom_error_type=INVALID_VALUE,
        custom_error_message=f"must be an item of one of the types {', '.join(KINDS)}",
    ),
]
Items = Annotated[list[InputItem], Field(min_length=1, max_length=MAX_CHAT_MESSAGES, fail_fast=True)]
Input = Annotated[Items, BeforeValidator(read_input, json_schema_input_type=str | Items)]
