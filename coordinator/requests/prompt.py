"""The prompt of a request: its token ids, from text, chat or ids, and its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.requests.chat import character_count, read_chat_options, read_messages, read_tools
from coordinator.requests.reasoning import Reasoning, beginning_of
from coordinator.requests.threads import in_thread
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import ModelInfo
from specpair.options import check_count
from specpair.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class PromptReader:
    """Reads prompts that fit the target. Texts are tokenized in another thread."""

    target: ModelInfo
    tokenizer: Tokenizer | None
    reasoning: Reasoning | None = None
    """Receives where the answer to a conversation begins."""

    async def read(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        """The prompt's tokens. Raises InvalidFieldError, PromptTooLongError, NotSupportedError."""
        kind = message.WhichOneof("prompt")
        encoder = self.target.encoder_decoder
        if kind is None and encoder is not None:
            return (encoder.decoder_start_token_id,)
        if kind is None:
            raise InvalidFieldError("prompt", "is missing; set text, token_ids or chat")
        prompt_ids = (
            self.checked("token_ids", message.token_ids.ids) if kind == "token_ids" else await self._encode(message)
        )
        if not prompt_ids:
            raise InvalidFieldError("prompt", "holds no token; it must hold at least 1", limit=1)
        if len(prompt_ids) >= self.target.max_model_len:
            raise PromptTooLongError(len(prompt_ids), self.target.max_model_len - 1)
        return prompt_ids

    async def text(self, message: pb.GenerateTokensRequest, prompt_ids: Sequence[int]) -> str:
        """The prompt as text: as given, or decoded from its tokens; empty without a tokenizer."""
        if message.WhichOneof("prompt") == "text":
            return message.text
        return "" if self.tokenizer is None else await in_thread(self.tokenizer.decode, prompt_ids)

    async def _encode(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        if message.WhichOneof("prompt") == "text":
            return tuple(await self.encode_text(message.text))
        return tuple(await self.encode_chat(message.chat))

    async def encode_text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The text's tokens. Raises PromptTooLongError if it cannot fit, NotSupportedError without a tokenizer."""
        tokenizer = self._tokenizer_for("text")
        self._check_characters("text", len(text), tokenizer)
        return await in_thread(tokenizer.encode, text, add_special_tokens=add_special_tokens)

    async def encode_chat(self, chat: pb.Chat, *, add_special_tokens: bool = False) -> list[int]:
        """The conversation's tokens. Raises InvalidFieldError, PromptTooLongError, NotSupportedError."""
        tokenizer = self._tokenizer_for("chat")
        messages = read_messages(chat.messages)
        self._check_characters("chat", character_count(chat), tokenizer)
        tools, options = read_tools(chat.tools), read_chat_options(chat)

        def encode() -> list[int]:
            text = tokenizer.chat_text(messages, tools, options)
            self._check_characters("chat", len(text), tokenizer)
            if self.reasoning is not None:
                continued = chat.messages[-1].content if options.continues_last else ""
                self.reasoning.beginning = beginning_of(self.reasoning.form, text, continued)
            return tokenizer.encode(text, add_special_tokens=add_special_tokens)

        return await in_thread(encode)

    async def strings(self, token_ids: Sequence[int]) -> list[str]:
        """What the tokenizer calls each token. Raises NotSupportedError."""
        return await in_thread(self._tokenizer_for("tokens").strings, token_ids)

    async def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `tokens`, with special tokens. Raises InvalidFieldError, NotSupportedError."""
        check_count("tokens", len(token_ids), self._longest)
        self._check_vocabulary("tokens", token_ids)
        return await in_thread(self._tokenizer_for("tokens").whole_text, token_ids)

    @property
    def _longest(self) -> int:
        """Tokens of the longest text that the target reads."""
        encoder = self.target.encoder_decoder
        return max(self.target.max_model_len, 0 if encoder is None else encoder.max_encoder_len)

    def _tokenizer_for(self, kind: str) -> Tokenizer:
        if self.tokenizer is None:
            advice = "" if kind == "tokens" else "; send token_ids"
            raise NotSupportedError(f"{kind}: the target has no tokenizer{advice}")
        return self.tokenizer

    def _check_characters(self, field: str, length: int, tokenizer: Tokenizer) -> None:
        """Refuses a text that cannot fit, whatever its tokens are, before the work of tokenizing it."""
        limit = self._longest * tokenizer.longest_token
        if length > limit:
            raise PromptTooLongError(length, limit, field=field, unit="characters", use="can fit the model")

    def checked(self, field: str, token_ids: Sequence[int]) -> tuple[int, ...]:
        """A copy of the tokens, all in the target's vocabulary. Raises InvalidFieldError, PromptTooLongError."""
        if len(token_ids) >= self.target.max_model_len:  # before they are copied
            raise PromptTooLongError(len(token_ids), self.target.max_model_len - 1)
        self._check_vocabulary(field, token_ids)
        return tuple(token_ids)

    def _check_vocabulary(self, field: str, token_ids: Sequence[int]) -> None:
        limit = self.target.vocab_size
        if token_ids and (worst := max(token_ids)) >= limit:
            raise InvalidFieldError(field, f"holds {worst}; ids are below {limit}", limit=limit - 1)
