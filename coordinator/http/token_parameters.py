"""The bodies of /tokenize and /detokenize, by vLLM's names."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from coordinator.http.messages import conversation
from coordinator.http.parameters import LayoutParameters, Messages, Text, TokenIds
from coordinator.http.structure_parameters import MAX_TOOLS, Tool
from coordinator.http.tools import described
from specpair.errors import InvalidFieldError
from specpair.v1 import coordinator_service_pb2 as pb


class TokenizeParameters(LayoutParameters):
    """The body of /tokenize: a prompt, or messages with what lays them out."""

    model_config = ConfigDict(protected_namespaces=())

    model: str | None = Field(None, description="The served model, as named by /v1/models.")
    prompt: Text | None = None
    messages: Messages | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = Field(None, description="Of the messages.")
    add_special_tokens: bool | None = Field(
        None, description="Adds what the model expects around a text. Default true for a prompt, false for messages."
    )
    return_token_strs: bool | None = Field(None, description="Adds how the vocabulary writes each token.")


class DetokenizeParameters(BaseModel):
    """The body of /detokenize."""

    model_config = ConfigDict(protected_namespaces=())

    model: str | None = Field(None, description="The served model, as named by /v1/models.")
    tokens: TokenIds


def tokenized_request(parameters: TokenizeParameters) -> pb.GenerateTokensRequest:
    """A request for the same text. Raises InvalidFieldError."""
    if parameters.messages is None:
        if parameters.prompt is None:
            raise InvalidFieldError("prompt", "is missing; send prompt or messages")
        return pb.GenerateTokensRequest(text=parameters.prompt)
    if parameters.prompt is not None:
        raise InvalidFieldError("messages", "cannot be combined with prompt")
    chat = conversation(parameters.messages, parameters)
    chat.tools.extend(described(parameters.tools))
    return pb.GenerateTokensRequest(chat=chat)
