"""A request for text: the one place that checks it."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.config import CoordinatorConfig
from coordinator.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import ModelInfo
from specpair.options import Encoding, Rule, SamplingOptions, check_range
from specpair.rpc.messages import encoding_from_proto, rule_from_proto, sampling_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

MAX_STOP_STRINGS = 16
MAX_STOP_STRING_LENGTH = 256
MAX_STOP_TOKENS = 64
MAX_CHAT_MESSAGES = 4096
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """What to generate, checked: every number is within its limits."""

    prompt_ids: tuple[int, ...]
    sampling: SamplingOptions
    max_tokens: int
    """At least 1; prompt and output fit the model."""
    stop_strings: tuple[str, ...]
    stop_token_ids: frozenset[int]
    """Those of the request and, unless they are to be ignored, the model's end-of-text tokens."""
    num_speculative_tokens: int
    rule: Rule
    encoding: Encoding
    include_rejected: bool


@dataclass(frozen=True, kw_only=True)
class RequestReader:
    """Turns messages into requests that the pair can serve."""

    config: CoordinatorConfig
    target: ModelInfo
    tokenizer: Tokenizer | None

    async def read(self, message: pb.GenerateTokensRequest) -> GenerationRequest:
        """The checked request; long texts become tokens in a thread of their own.

        Raises InvalidFieldError, PromptTooLongError, or NotSupportedError (text without a tokenizer).
        """
        sampling = _read_sampling(message)
        num_speculative_tokens = self._read_speculation(message)
        rule, encoding = rule_from_proto(message.rule), encoding_from_proto(message.encoding)
        stop_strings = self._read_stop_strings(message.stop_strings)
        stop_token_ids = self._read_stop_tokens(message)
        prompt_ids = await self._read_prompt(message)
        return GenerationRequest(
            prompt_ids=prompt_ids,
            sampling=sampling,
            max_tokens=self._read_max_tokens(message, len(prompt_ids)),
            stop_strings=stop_strings,
            stop_token_ids=stop_token_ids,
            num_speculative_tokens=num_speculative_tokens,
            rule=rule,
            encoding=encoding,
            include_rejected=message.include_rejected,
        )

    async def _read_prompt(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        kind = message.WhichOneof("prompt")
        if kind is None:
            raise InvalidFieldError("prompt", "is missing; set text, token_ids or chat")
        if kind == "token_ids":
            prompt_ids = self._check_tokens("token_ids", message.token_ids.ids)
        else:
            prompt_ids = await self._encode(message)
        if not prompt_ids:
            raise InvalidFieldError("prompt", "holds no token; it must hold at least 1", limit=1)
        if len(prompt_ids) >= self.target.max_model_len:
            raise PromptTooLongError(len(prompt_ids), self.target.max_model_len - 1)
        return prompt_ids

    async def _encode(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        kind = message.WhichOneof("prompt")
        if self.tokenizer is None:
            raise NotSupportedError(f"{kind}: the target has no tokenizer; send token_ids")
        if kind == "text":
            self._check_characters("text", len(message.text))
            return tuple(await asyncio.to_thread(self.tokenizer.encode, message.text))
        messages = _read_chat(message.chat.messages)
        self._check_characters("chat", sum(len(entry["content"]) for entry in messages))
        return tuple(await asyncio.to_thread(self.tokenizer.encode_chat, messages))

    def _check_characters(self, field: str, length: int) -> None:
        """Refuses a text before the work of making tokens of it, if it cannot fit whatever its tokens are."""
        assert self.tokenizer is not None
        limit = self.target.max_model_len * self.tokenizer.longest_token
        if length > limit:
            raise InvalidFieldError(field, f"has {length} characters; at most {limit} can fit the model", limit=limit)

    def _read_max_tokens(self, message: pb.GenerateTokensRequest, prompt_length: int) -> int:
        room = self.target.max_model_len - prompt_length
        if not message.HasField("max_tokens"):
            return room
        check_range("max_tokens", message.max_tokens, 1, 2**32 - 1)
        return min(message.max_tokens, room)

    def _read_speculation(self, message: pb.GenerateTokensRequest) -> int:
        if not message.HasField("num_speculative_tokens"):
            return self.config.num_speculative_tokens
        check_range("num_speculative_tokens", message.num_speculative_tokens, 0, self.config.max_num_speculative_tokens)
        return message.num_speculative_tokens

    def _read_stop_strings(self, stop_strings: Sequence[str]) -> tuple[str, ...]:
        _check_count("stop_strings", len(stop_strings), MAX_STOP_STRINGS)
        if stop_strings and self.tokenizer is None:
            raise NotSupportedError("stop_strings: the target has no tokenizer; send stop_token_ids")
        for index, stop in enumerate(stop_strings):
            check_range(f"stop_strings[{index}] length", len(stop), 1, MAX_STOP_STRING_LENGTH)
        return tuple(stop_strings)

    def _read_stop_tokens(self, message: pb.GenerateTokensRequest) -> frozenset[int]:
        _check_count("sampling.stop_token_ids", len(message.sampling.stop_token_ids), MAX_STOP_TOKENS)
        own = () if message.ignore_eos else self.target.eos_token_ids
        return frozenset((*self._check_tokens("sampling.stop_token_ids", message.sampling.stop_token_ids), *own))

    def _check_tokens(self, field: str, token_ids: Sequence[int]) -> tuple[int, ...]:
        if token_ids and (worst := max(token_ids)) >= self.target.vocab_size:
            limit = self.target.vocab_size - 1
            raise InvalidFieldError(field, f"holds {worst}; ids go up to {limit}", limit=limit)
        return tuple(token_ids)


def _read_sampling(message: pb.GenerateTokensRequest) -> SamplingOptions:
    """The options, with a seed drawn here if none is given: it is reported, so any output can be repeated."""
    sampling = sampling_from_proto(message.sampling)
    return sampling if message.sampling.HasField("seed") else replace(sampling, seed=secrets.randbits(64))


def _read_chat(messages: Sequence[pb.ChatMessage]) -> list[dict[str, str]]:
    check_range("chat.messages count", len(messages), 1, MAX_CHAT_MESSAGES)
    for index, entry in enumerate(messages):
        if entry.role not in ROLES:
            raise InvalidFieldError(f"chat.messages[{index}].role", f"is {entry.role!r}; it must be one of {ROLES}")
    return [{"role": entry.role, "content": entry.content} for entry in messages]


def _check_count(field: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidFieldError(field, f"has {count} entries; at most {limit} are allowed", limit=limit)
