"""What the encoder of an encoder-decoder target reads for a request."""

from dataclasses import dataclass

from coordinator.requests.threads import in_thread
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import EncoderInfo, ModelInfo
from specpair.v1 import coordinator_service_pb2 as pb

TEXT, IDS = "encoder_text", "encoder_token_ids"


@dataclass(frozen=True, kw_only=True)
class EncoderReader:
    """Reads what the encoder needs. Texts are tokenized in another thread."""

    target: ModelInfo
    tokenizer: Tokenizer | None

    async def read(self, message: pb.GenerateTokensRequest) -> tuple[int, ...]:
        """The tokens for the encoder; empty if the target has none. Raises InvalidFieldError, PromptTooLongError,
        NotSupportedError."""
        has_text, has_ids = message.HasField(TEXT), message.HasField(IDS)
        encoder = self.target.encoder_decoder
        if encoder is None:
            if has_text or has_ids:
                raise InvalidFieldError(TEXT if has_text else IDS, "is set, but the target has no encoder", limit=0)
            return ()
        if message.HasField("chat"):
            raise InvalidFieldError("chat", "is not for a target with an encoder, which reads one text")
        if has_text == has_ids:
            problem = (
                f"and {IDS} are both set" if has_text else f"is missing; the target has an encoder: set it, or {IDS}"
            )
            raise InvalidFieldError(TEXT, problem)
        check_prompt(message)
        token_ids = await self._encode(message.encoder_text, encoder) if has_text else self._checked(message, encoder)
        if not token_ids:
            raise InvalidFieldError(TEXT if has_text else IDS, "holds no token; it must hold at least 1", limit=1)
        return token_ids

    async def _encode(self, text: str, encoder: EncoderInfo) -> tuple[int, ...]:
        if self.tokenizer is None:
            raise NotSupportedError(f"{TEXT}: the target has no tokenizer; send {IDS}")
        longest = encoder.max_encoder_len * self.tokenizer.longest_token
        _check_length(TEXT, len(text), longest, "characters")  # before the work of tokenizing it
        token_ids = await in_thread(self.tokenizer.encode, text)
        _check_length(TEXT, len(token_ids), encoder.max_encoder_len)
        return tuple(token_ids)

    def _checked(self, message: pb.GenerateTokensRequest, encoder: EncoderInfo) -> tuple[int, ...]:
        ids = message.encoder_token_ids.ids
        _check_length(IDS, len(ids), encoder.max_encoder_len)  # before they are copied
        if ids and (worst := max(ids)) >= self.target.vocab_size:
            limit = self.target.vocab_size - 1
            raise InvalidFieldError(IDS, f"holds {worst}; ids are below {limit + 1}", limit=limit)
        return tuple(ids)


def _check_length(field: str, length: int, limit: int, unit: str = "tokens") -> None:
    if length > limit:
        raise PromptTooLongError(length, limit, field=field, unit=unit, use="can fit the encoder")


def check_prompt(message: pb.GenerateTokensRequest) -> None:
    """The prompt of an encoder-decoder target is that of its decoder: by default its start token, else token ids.
    Raises InvalidFieldError, NotSupportedError."""
    kind = message.WhichOneof("prompt")
    if kind not in (None, "token_ids"):
        problem = f"would be a text for the decoder; what the target's encoder reads is {TEXT}"
        raise InvalidFieldError(kind, problem)
    for field, is_set in (("echo", message.echo), ("prompt_logprobs", message.HasField("prompt_logprobs"))):
        if is_set:
            raise NotSupportedError(f"{field}: not supported for encoder-decoder models")
