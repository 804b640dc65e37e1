"""A tokenizer as translation needs it: bytes of tokens, tokens of bytes."""

import json
from bisect import bisect_right
from functools import cached_property

from tokenizers import Tokenizer as FastTokenizer

from draft_service.translation.token_bytes import check_writer, read_token_bytes
from specpair.errors import VocabularyMismatchError
from specpair.model_info import TokenizerFiles

MOST_BYTES = 64
"""Longest token that is found where the tokenizer itself does not cut a text."""
MAX_TOKEN_ID = 1 << 20


class Vocabulary:
    """The tokens of a draft or a target. Raises VocabularyMismatchError, with the reason, where they give no text."""

    def __init__(self, files: TokenizerFiles, *, writes: bool = False):
        """`writes` for the draft, which has to read every text."""
        try:
            document = json.loads(files.tokenizer_json)
            known = read_token_bytes(document)
            if writes:
                check_writer(document)
            self._fast = FastTokenizer.from_buffer(files.tokenizer_json)
            self._fast.no_truncation()
            self._fast.no_padding()
            plain = self.encode("a")
            whole = self._fast.encode("a").ids
        except VocabularyMismatchError:
            raise
        except BaseException as error:  # the library raises bare Exceptions, and panics
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise VocabularyMismatchError("a tokenizer cannot be read") from error
        if not all(type(token_id) is int and token_id >= 0 for token_id in (*known.pieces, *known.specials)):
            raise VocabularyMismatchError("a tokenizer has ids that are no numbers")
        self.pieces, self.fallbacks, self.specials = known.pieces, known.fallbacks, known.specials
        self.drops_first_space = known.drops_first_space
        self.width = 1 + max((*self.pieces, *self.specials), default=0)
        """Token ids are below it."""
        if self.width > MAX_TOKEN_ID:
            raise VocabularyMismatchError(f"a tokenizer has ids of {MAX_TOKEN_ID} and above")
        if not self.pieces:
            raise VocabularyMismatchError("a tokenizer has no tokens of text")
        names = {name: token_id for token_id, name in self.specials.items()}
        self.bos, self.eos = names.get(files.bos_token), names.get(files.eos_token)
        self.filler = self.bos if self.bos is not None else self.eos if self.eos is not None else min(self.pieces)
        """A token to begin with where a text has none."""
        self.lead = tuple(i for i in whole[: len(whole) - len(plain)] if i in self.specials) if plain else ()
        """Special tokens that begin each text."""

    @cached_property
    def by_bytes(self) -> dict[bytes, int]:
        """The token of each byte string; of several the first that is no fallback."""
        found: dict[bytes, int] = {}
        for token_id in sorted(self.pieces, key=lambda i: (i in self.fallbacks, i)):
            found.setdefault(self.pieces[token_id], token_id)
        return found

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of tokens in bytes that occur, ascending, up to MOST_BYTES."""
        return sorted({len(piece) for piece in self.by_bytes if len(piece) <= MOST_BYTES})

    def encode(self, text: str) -> list[int]:
        """As the tokenizer cuts the text."""
        return self._fast.encode_batch([text], add_special_tokens=False)[0].ids

    def longest_at(self, data: bytes, start: int) -> tuple[int, int] | None:
        """The longest token that `data` has at `start`, and where it ends; None if none begins there."""
        for length in reversed(self.lengths[: bisect_right(self.lengths, len(data) - start)]):
            token_id = self.by_bytes.get(data[start : start + length])
            if token_id is not None:
                return token_id, start + length
        return None
