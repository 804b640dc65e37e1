"""The bodies of requests: OpenAI's parameters, vLLM's extensions, and our own.

Types and the lengths of lists are checked here, values in the checks that all front ends share. Unknown parameters are
ignored (`unknown_parameters` beside this file), and null means that a parameter is not given.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from coordinator.config import MAX_SPECULATIVE_TOKENS
from coordinator.draft_names import MAX_DRAFTS
from coordinator.http.refusals import INVALID_VALUE, one_of, refusal
from coordinator.http.structure_parameters import MAX_TOOLS, StructureParameters, ToolCall, ToolParameters
from coordinator.requests.chat import MAX_CHAT_MESSAGES, ROLES
from coordinator.requests.request import MAX_OUTPUTS, MAX_STOP_STRING_LENGTH, MAX_STOP_STRINGS
from coordinator.requests.sampling import MAX_REQUESTED_STOP_TOKENS
from specpair.options import (
    MAX_BIASES,
    MAX_LISTED_TOKENS,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_SEED,
    MAX_TEMPERATURE,
    MAX_UINT32,
    MIN_REPETITION_PENALTY,
    Drafter,
    Merge,
    Rule,
    WorkAhead,
)
from specpair.speculation.beams.beam_options import MAX_BEAMS, MAX_LENGTH_PENALTY, MIN_LENGTH_PENALTY

MAX_PROMPTS = 128
MODELS_ELSE = "Default: that of the model's generation config, else"
PROMPT_KINDS = "must be a text, token ids, or a list of either"

Prompt = str | list[int]


def read_prompts(value: Any) -> list[Prompt]:
    """The prompts of a completion. A list of numbers is one prompt, any other list several."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], int)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise refusal("prompt", PROMPT_KINDS)
    if len(value) > MAX_PROMPTS:
        raise refusal(INVALID_VALUE, f"has {len(value)} prompts; at most {MAX_PROMPTS} are taken")
    return [_read_prompt(prompt) for prompt in value]


def _read_prompt(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return check_text(prompt)
    if not isinstance(prompt, list) or any(type(token_id) is not int for token_id in prompt):
        raise refusal("prompt", PROMPT_KINDS)
    if prompt and not 0 <= min(prompt) <= max(prompt) <= MAX_UINT32:
        raise refusal(INVALID_VALUE, "holds a number that is not a token id")
    return prompt


def check_text(text: str) -> str:
    """Refuses unpaired surrogates: JSON can hold such half characters, but they are not text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refusal(INVALID_VALUE, "holds an unpaired surrogate, which is not a character") from None
    return text


def read_logit_bias(value: Any) -> dict[int, float]:
    """Token ids are strings here, as keys of an object must be."""
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        raise refusal("logit_bias", f"must be an object of at most {MAX_BIASES} token ids and numbers")
    return {_read_token_id(key): _read_bias(bias) for key, bias in value.items()}


def _read_token_id(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= MAX_UINT32):
        raise refusal(INVALID_VALUE, "has a key that is not a token id")
    return int(key)


def _read_bias(bias: Any) -> float:
    if isinstance(bias, bool) or not isinstance(bias, int | float) or abs(bias) > 1e30:
        raise refusal(INVALID_VALUE, "has a value that is not a number in [-100, 100]")
    return float(bias)


def read_stop(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or any(not isinstance(stop, str) for stop in stops):
        raise refusal("stop", "must be a text or a list of texts")
    if len(stops) > MAX_STOP_STRINGS:
        raise refusal(INVALID_VALUE, f"has {len(stops)} texts; at most {MAX_STOP_STRINGS} are taken")
    return [check_text(stop) for stop in stops]


def join_parts(value: Any) -> Any:
    """The text of a message that comes in parts. Only text parts are allowed."""
    return joined(value, ("text",))


def joined(value: Any, kinds: Sequence[str]) -> Any:
    """The text of a content that is a text, or a list of parts of these types."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return value
    return "".join(_read_part(part, kinds) for part in value)


def _read_part(part: Any, kinds: Sequence[str]) -> str:
    if isinstance(part, dict) and part.get("type") in kinds and isinstance(text := part.get("text"), str):
        return text
    raise refusal("content", f"must be a text or a list of parts of type {' or '.join(kinds)}")


Uint32 = Annotated[int, Field(ge=0, le=MAX_UINT32)]
TokenIds = Annotated[list[Uint32], Field(fail_fast=True)]
Prompts = Annotated[
    Any,
    PlainValidator(
        read_prompts,
        json_schema_input_type=str
        | Annotated[list[Uint32], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[list[Uint32]], Field(min_length=1, max_length=MAX_PROMPTS)],
    ),
]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_STRING_LENGTH)]
Stop = Annotated[
    Any,
    PlainValidator(
        read_stop,
        json_schema_input_type=StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)],
    ),
]
Text = Annotated[str, AfterValidator(check_text)]
LogitBias = Annotated[Any, PlainValidator(read_logit_bias, json_schema_input_type=dict[str, float])]


class TextPart(BaseModel):
    """A part of a message."""

    type: str = Field(pattern="^text$")
    text: Text


class ChatMessage(BaseModel):
    """One message of a conversation."""

    role: Text = Field(json_schema_extra={"enum": [*ROLES]})
    content: Annotated[Text, BeforeValidator(join_parts, json_schema_input_type=str | list[TextPart] | None)] = ""
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: Text | None = None
    reasoning_content: Text | None = Field(None, description="What the assistant thought before, for the template.")
    reasoning: Text | None = Field(None, description="vLLM's newer name for reasoning_content.")


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = Field(None, description="Adds a chunk with usage and metrics before the end.")


def described(low: float, high: float, description: str | None = None) -> Any:
    """An optional parameter. Its limits are documented here and checked where all front ends check them."""
    return Field(None, description=description, json_schema_extra={"minimum": low, "maximum": high})


class GenerationParameters(StructureParameters):
    """What completions and chat completions have in common."""

    model_config = ConfigDict(protected_namespaces=())

    model: str | None = Field(None, description="The served model, as named by /v1/models.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, description="Ignored.")

    n: Uint32 | None = described(1, MAX_OUTPUTS)
    best_of: Uint32 | None = described(1, MAX_OUTPUTS)
    max_tokens: Uint32 | None = Field(None, description="Default: as many as fit the model.")
    stop: Stop | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=MAX_SEED)] | None = Field(
        None, description="Choice i uses seed + i. A negative seed stands for seed + 2^64."
    )
    temperature: float | None = described(0, MAX_TEMPERATURE, f"0 is greedy. {MODELS_ELSE} 1.")
    top_p: float | None = described(0, 1, f"Must be above 0. {MODELS_ELSE} 1.")
    presence_penalty: float | None = described(-MAX_PENALTY, MAX_PENALTY)
    frequency_penalty: float | None = described(-MAX_PENALTY, MAX_PENALTY)
    logit_bias: LogitBias | None = None

    top_k: Annotated[int, Field(ge=-1, le=MAX_UINT32)] | None = Field(
        None, description=f"0 or -1 keeps all tokens. {MODELS_ELSE} 0."
    )
    min_p: float | None = described(0, 1, f"{MODELS_ELSE} 0.")
    repetition_penalty: float | None = described(MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY, f"{MODELS_ELSE} 1.")
    min_tokens: Uint32 | None = None
    stop_token_ids: Annotated[TokenIds, Field(max_length=MAX_REQUESTED_STOP_TOKENS)] | None = None
    allowed_token_ids: Annotated[TokenIds, Field(min_length=1, max_length=MAX_LISTED_TOKENS)] | None = Field(
        None, description="The only tokens that may be drawn."
    )
    banned_token_ids: Annotated[TokenIds, Field(max_length=MAX_LISTED_TOKENS)] | None = Field(
        None, description="Tokens that are never drawn."
    )
    ignore_eos: bool | None = None
    prompt_logprobs: Uint32 | None = described(0, MAX_LOGPROBS)

    bad_words: Annotated[list[str], Field(fail_fast=True)] | None = Field(
        None, description="Not supported; empty or null."
    )
    include_stop_str_in_output: bool | None = Field(None, description="Not supported; false or null.")
    truncate_prompt_tokens: int | None = Field(None, description="Not supported; null.")

    num_speculative_tokens: Uint32 | None = described(
        0,
        MAX_SPECULATIVE_TOKENS,
        "Tokens proposed in each round, at most what the server allows; 0 switches speculation off. Default: the "
        "server decides.",
    )
    num_tree_tokens: Uint32 | None = described(
        0,
        MAX_SPECULATIVE_TOKENS,
        "Proposals are trees of so many tokens at most, on paths of num_speculative_tokens; 0 for chains. Default: the "
        "server decides.",
    )
    rule: Rule | None = Field(
        None, description="How proposals are judged. Default: the server's, usually block; token with lenience."
    )
    drafter: Drafter | None = Field(None, description="What proposes tokens. Default: the draft service's own choice.")
    drafts: Annotated[list[Text], Field(max_length=MAX_DRAFTS, fail_fast=True)] | None = Field(
        None,
        description="The drafts that propose, by name; the proposals of several are merged into one tree. Drafters "
        "such as ngram may be among them. Default: the server decides.",
    )
    merge: Merge | None = Field(
        None,
        description="What becomes of the proposals of several drafts. Default: tree if drafts names several, else the "
        "server decides.",
    )
    work_ahead: WorkAhead | None = Field(
        None,
        description="Whether the draft prepares proposals while the target verifies. It changes no token. Default: the "
        "server decides.",
    )
    lenience: float | None = described(0, 1, "Lossy below 1, which requires the token rule. Default 1: exact.")
    use_beam_search: bool | None = Field(None, description="vLLM's name: beam search with n beams.")
    num_beams: Uint32 | None = described(
        1, MAX_BEAMS, "Beam search with so many beams; the n best are the choices. Default: n with use_beam_search."
    )
    length_penalty: float | None = described(
        MIN_LENGTH_PENALTY, MAX_LENGTH_PENALTY, "A beam's score is divided by its length to this power. Default 1."
    )
    early_stopping: Annotated[bool | Literal["never"], one_of(INVALID_VALUE, "must be true, false or never")] | None = (
        Field(None, description="When a beam search ends, as transformers has it. Default false.")
    )
    include_rounds: bool | None = Field(None, description="Reports how each round went.")


class CompletionParameters(GenerationParameters):
    """The body of /v1/completions."""

    prompt: Prompts
    echo: bool | None = None
    logprobs: Uint32 | None = described(0, MAX_LOGPROBS, "For each token, and for this many of the likeliest.")
    suffix: str | None = Field(None, description="Not supported; empty or null.")


class LayoutParameters(BaseModel):
    """How the chat template lays out a conversation: vLLM's names."""

    continue_final_message: bool | None = Field(
        None, description="Continues the last message, which is the assistant's, instead of beginning another."
    )
    add_generation_prompt: bool | None = Field(
        None, description="The text ends with what begins the next message. Default true, unless one is continued."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="More variables for the chat template.")


Messages = Annotated[list[ChatMessage], Field(fail_fast=True, max_length=MAX_CHAT_MESSAGES)]


class ChatParameters(GenerationParameters, ToolParameters, LayoutParameters):
    """The body of /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: Uint32 | None = Field(None, description="OpenAI's newer name for max_tokens.")
    echo: bool | None = Field(None, description="Not supported; false or null.")
    logprobs: bool | None = None
    top_logprobs: Uint32 | None = described(0, MAX_LOGPROBS, "Requires logprobs to be true.")
