"""Converts between text and token ids, with the files that a model service provides."""

import json
import logging
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from coordinator.requests.chat_template import ChatOptions, ChatTemplate
from specpair.errors import NotSupportedError, SpecpairError
from specpair.model_info import TokenizerFiles

REFERENCE_TEXT = "a"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
TEXT_CACHE_SIZE = 65536
TAG = re.compile("<.*>", re.DOTALL)
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
"""A byte, where the decoder falls back to bytes."""
PANIC_MODULE = "pyo3_runtime"

logger = logging.getLogger(__name__)


class Tokenizer:
    """A model's tokenizer and chat template. Raises SpecpairError if the tokenizer cannot be read. A template that
    cannot be read is left out, and the log says why."""

    def __init__(self, files: TokenizerFiles):
        try:
            with panics_caught():
                self._fast = FastTokenizer.from_buffer(files.tokenizer_json)
        except Exception as error:  # the library raises bare Exceptions
            raise SpecpairError(f"the tokenizer cannot be read: {error}") from error
        special_texts = {"bos_token": files.bos_token, "eos_token": files.eos_token}
        self._template = _read_template(files.chat_template, special_texts)
        with panics_caught():
            added = self._fast.get_added_tokens_decoder()
        self._added_ids = {token.content: token_id for token_id, token in added.items()}
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        """Special tokens, which `decode` leaves out."""
        self.tag_ids = (
            frozenset(self._added_ids[text] for text in self._added_ids if TAG.fullmatch(text)) - self.special_ids
        )
        """Other added tokens such as <think>, which stand for a part of the text."""
        self.reference_ids = self._encode(REFERENCE_TEXT, add_special_tokens=False)
        """Tokens to decode others after, where the preceding ones are not known."""
        self.token_text = lru_cache(TEXT_CACHE_SIZE)(self._token_text)
        """The text of one token by itself; empty where it holds no complete character."""
        self.first_text = lru_cache(TEXT_CACHE_SIZE)(self._first_text)
        """The text of one token at the beginning of a text, as `decode` gives it."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with the special tokens that the model expects around it."""
        return self._encode(text, add_special_tokens=add_special_tokens)

    def encode_chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] = ()) -> list[int]:
        """Token ids of a conversation (role and content) that the assistant continues; it may call the tools.

        Raises what `chat_text` does.
        """
        return self._encode(self.chat_text(messages, tools), add_special_tokens=False)

    def chat_text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] = (), options: ChatOptions | None = None
    ) -> str:
        """The text of a conversation, with its special tokens.

        Raises NotSupportedError without a chat template, InvalidFieldError if the template refuses the messages.
        """
        if self._template is None:
            raise NotSupportedError("chat: the model has no chat template that can be read; send text or token_ids")
        return self._template.text(messages, tools, options or ChatOptions())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        with panics_caught():
            return self._fast.decode(token_ids, skip_special_tokens=True)

    def whole_text(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, with special tokens. Other threads run meanwhile, as with `encode`."""
        with panics_caught():
            return self._fast.decode_batch([token_ids], skip_special_tokens=False)[0]

    def strings(self, token_ids: Sequence[int]) -> list[str]:
        """How the vocabulary writes each token, such as `Ġdef`; empty for an id without a string."""
        with panics_caught():
            return [self._fast.id_to_token(token_id) or "" for token_id in token_ids]

    def as_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json."""
        with panics_caught():
            return self._fast.to_str()

    def added_id(self, text: str) -> int | None:
        """The added token that is written like this text, special or not; None if there is none."""
        return self._added_ids.get(text)

    def vocabulary(self) -> dict[int, str]:
        """Each id that has a string, added tokens included."""
        return {token_id: token for token, token_id in self._ids().items()}

    @cached_property
    def longest_token(self) -> int:
        """Most characters that one token may stand for."""
        return max(map(len, self._ids()), default=1)

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of one token, which may be a part of a character; None for special ones and where nothing tells."""
        with panics_caught():
            token = self._fast.id_to_token(token_id)
        if token is None or token_id in self.special_ids:
            return None
        if "ByteFallback" in self._decoders and (match := BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(match[1])
        if "ByteLevel" in self._decoders and all(letter in BYTE_OF_LETTER for letter in token):
            return bytes(BYTE_OF_LETTER[letter] for letter in token)
        return None

    @cached_property
    def _decoders(self) -> frozenset[str]:
        """The types of the steps that make text of tokens."""
        with panics_caught():
            decoder = self._fast.decoder
            step = {} if decoder is None else json.loads(decoder.__getstate__())
        return frozenset(part["type"] for part in step.get("decoders", [step]) if part)

    def _ids(self) -> dict[str, int]:
        with panics_caught():
            return self._fast.get_vocab(with_added_tokens=True)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        with panics_caught():
            # Other threads run while the library encodes a batch, but not while it encodes a single text.
            return self._fast.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids

    def _first_text(self, token_id: int) -> str:
        return self.decode([token_id])

    def _token_text(self, token_id: int) -> str:
        # After other tokens, because decoders drop a leading space.
        with panics_caught():
            context = self._fast.decode(self.reference_ids)
            text = self._fast.decode([*self.reference_ids, token_id], skip_special_tokens=True)[len(context) :]
        return "" if REPLACEMENT in text else text


class panics_caught:
    """Turns a panic of the library into an error: it is not an Exception and would end its task unseen.

    A class, since `contextmanager` takes as long as decoding a token.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if type(error).__module__ == PANIC_MODULE:
            raise SpecpairError("the tokenizer failed") from error


def _read_template(source: str, special_texts: dict[str, str]) -> ChatTemplate | None:
    """The chat template; None, with a line in the log, for one that cannot be read: completions need none."""
    try:
        return ChatTemplate(source, special_texts) if source else None
    except SpecpairError as error:
        logger.warning("%s; chat is refused", error.message)
        return None


def _bytes_of_letters() -> dict[str, int]:
    """The letters by which byte-level tokenizers write bytes: GPT-2's table, which is that of all of them."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_OF_LETTER = _bytes_of_letters()
