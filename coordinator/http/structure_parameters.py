"""The parameters of structured outputs and tools: OpenAI's names and vLLM's. Types are checked here, what they say in
`structures` and `tools` beside this file."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coordinator.http.refusals import INVALID_TYPE, INVALID_VALUE, one_of
from coordinator.requests.chat import MAX_TOOLS
from specpair.options import MAX_CHOICES

NAME = "^[a-zA-Z0-9_-]{1,64}$"

Schema = dict[str, Any]
JsonSchema = Annotated[str | Schema, one_of(INVALID_TYPE, "must be a JSON Schema, as an object or a text")]


class JsonSchemaFormat(BaseModel):
    """OpenAI's `response_format.json_schema`. The schema is followed whatever `strict` says."""

    model_config = ConfigDict(protected_namespaces=(), populate_by_name=True)

    name: str | None = None
    content: Schema | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """OpenAI's `response_format`."""

    model_config = ConfigDict(protected_namespaces=())

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    content: Schema | None = Field(None, alias="schema", description="llama.cpp's: of a json_object.")


class StructuredOutputs(BaseModel):
    """vLLM's `structured_outputs`: one of them."""

    model_config = ConfigDict(protected_namespaces=(), populate_by_name=True)

    json_value: JsonSchema | None = Field(None, alias="json", description="A JSON Schema.")
    json_object: bool | None = None
    regex: str | None = None
    grammar: str | None = Field(None, description="In the Lark form of llguidance.")
    choice: list[str] | None = Field(None, max_length=MAX_CHOICES)


class StructureParameters(BaseModel):
    """What the output has to look like: at most one of them."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = Field(None, description="vLLM's.")
    guided_json: JsonSchema | None = Field(None, description="vLLM's older name.")
    guided_regex: str | None = Field(None, description="vLLM's older name.")
    guided_grammar: str | None = Field(None, description="vLLM's older name.")
    guided_choice: list[str] | None = Field(None, max_length=MAX_CHOICES, description="vLLM's older name.")
    regex: Any = Field(None, description="SGLang's; not supported: use structured_outputs.")
    ebnf: Any = Field(None, description="SGLang's; not supported: use structured_outputs.")
    json_schema: Any = Field(None, description="Of SGLang and llama.cpp; not supported: use structured_outputs.")
    grammar: Any = Field(None, description="llama.cpp's; not supported: use structured_outputs.")


class FunctionDefinition(BaseModel):
    """A function that the model may call."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Schema | None = Field(None, description="A JSON Schema of its arguments; any object without one.")
    strict: bool | None = Field(None, description="Arguments follow the schema whatever it says.")


class Tool(BaseModel):
    """A tool that the model may call."""

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(BaseModel):
    """Names a function."""

    name: str = Field(pattern=NAME)


class NamedTool(BaseModel):
    """The one tool to call."""

    type: Literal["function"] = "function"
    function: FunctionName


class AllowedTools(BaseModel):
    """Some of the tools, and whether one of these must be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedChoice(BaseModel):
    """OpenAI's choice of some tools: the model is told of all, and may call these."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool | AllowedChoice,
    one_of(
        INVALID_VALUE,
        'must be none, auto or required, name a function: {"type": "function", "function": {"name": ...}}, or name '
        'some: {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}',
    ),
]


class FunctionCall(BaseModel):
    """What a model called earlier in the conversation."""

    name: str = Field(pattern=NAME)
    arguments: str = Field(description="JSON.")


class ToolCall(BaseModel):
    """A call that a model made earlier in the conversation."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ToolParameters(BaseModel):
    """Functions that the model may call, in chat."""

    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = Field(None, description="Default auto if there are tools.")
    parallel_tool_calls: bool | None = Field(None, description="Whether several calls may come at once. Default true.")
