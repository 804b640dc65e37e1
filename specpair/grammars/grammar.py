"""A compiled structured output, and where a text stands in it."""

import ctypes
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specpair.errors import InvalidGrammarError
from specpair.prefixes import common_length

NO_TOKEN = "came to a point where no token can continue the text, or where that is too complex to find out"
TOO_COMPLEX = "is too complex to follow the text further"
MAX_FORCED_TOKENS = 64
"""Forced tokens that one question may ask for: each takes a mask."""
MASKS_SECONDS = 0.25
"""Processor time of one question for masks. A pass waits for its masks, and other sequences with it. The library's own
limits bound a single mask, at some tenths of a second in the worst case; usual ones take a thousandth of that."""
DRAFT_MASK_SECONDS = 0.05
"""Processor time of a mask after which a draft, which draws each token with a mask of its own, goes on without."""
OTHER_OUTPUT = "does not fit the tokens that the output has already"


@dataclass(frozen=True, kw_only=True)
class RowMask:
    """Which tokens may come at one place of a text."""

    bits: bytes | None = None
    """Bit i % 8 of byte i // 8 is set if token i may come; padded to 4 bytes. None where it does not matter: the text
    before this place is none that may come, or has ended."""
    is_stuck: bool = False
    """Whether nothing may be drawn here: the text is not complete and no token continues it, or the matcher came to
    its limits. `bits` is None then."""


ANY = RowMask()


class Grammar:
    """A structured output, compiled for a vocabulary. Never follows a text itself."""

    def __init__(self, matcher: Any, vocab_size: int, eos_token_ids: Sequence[int]):
        """`matcher` is an LLMatcher that has consumed nothing."""
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(eos_token_ids)
        self._matcher = matcher
        self._lock = threading.Lock()

    def matcher(self) -> Any:
        """A matcher at the beginning of the text."""
        with self._lock:
            return self._matcher.deep_copy()

    def check_start(self) -> None:
        """Raises InvalidGrammarError unless a first token exists."""
        if GrammarState(self).masks((), [()])[0].is_stuck:
            raise InvalidGrammarError("allows no text")


class GrammarState:
    """Follows the text of one sequence. Addressed by the text alone, so that it can be rolled back, forked and made
    anew anywhere. Any thread may ask; one is answered at a time.
    """

    def __init__(self, grammar: Grammar):
        self._grammar = grammar
        self._matcher = grammar.matcher()
        self._consumed: list[int] = []
        self._has_failed = False
        """Whether the matcher came to its limits on the way to the last text."""
        self._is_slow = False
        """Whether a draft does without masks: one took too long."""
        self._lock = threading.Lock()

    def fork(self) -> "GrammarState":
        """A state for another text of the same grammar."""
        return GrammarState(self._grammar)

    def masks(self, output: Sequence[int], paths: Sequence[Sequence[int]]) -> list[RowMask]:
        """For each path of tokens after `output` the tokens that may come next.

        Raises InvalidGrammarError if `output` is not the beginning of a text that may come, or if it takes too long.
        """
        with self._lock:
            if not self._reach(output):  # a long text that is resumed takes long by right
                raise InvalidGrammarError(TOO_COMPLEX if self._has_failed else OTHER_OUTPUT)
            latest = time.thread_time() + MASKS_SECONDS
            found: list[RowMask] = []
            for path in paths:
                if time.thread_time() > latest:
                    raise InvalidGrammarError(TOO_COMPLEX)
                found.append(self._mask([*output, *path]))
            return found

    def next_bits(self, output: Sequence[int]) -> bytes | None:
        """The mask after `output`, for who draws what others judge; None where there is none, where `output` is not the
        beginning of a text that may come, and for good once one took too long."""
        with self._lock:
            if self._is_slow:
                return None
            started = time.thread_time()
            bits = self._mask(output).bits
            self._is_slow = time.thread_time() - started > DRAFT_MASK_SECONDS
            return bits

    def forced(self, output: Sequence[int], most: int) -> list[int]:
        """The tokens that have to follow `output`, up to `most`: at the place of each no other one may come. Drawing
        them by the masks would give just these, whatever the model says."""
        found: list[int] = []
        with self._lock:
            latest = time.thread_time() + MASKS_SECONDS
            while (
                len(found) < most
                and time.thread_time() < latest
                and (token := only_token(self._mask([*output, *found]).bits)) is not None
            ):
                found.append(token)
        return found

    def _mask(self, tokens: Sequence[int]) -> RowMask:
        if not self._reach(tokens):
            return RowMask(is_stuck=self._has_failed)
        if tokens and tokens[-1] in self._grammar.eos_token_ids:
            return ANY
        size = (self._grammar.vocab_size + 31) // 32 * 4
        bits = ctypes.create_string_buffer(size)
        self._matcher.unsafe_compute_mask_ptr(ctypes.addressof(bits), size)
        is_complete = not self._matcher.is_error() and self._matcher.is_accepting()
        if self._matcher.is_error() or (self._matcher.is_stopped() and not is_complete):
            self._begin_again()
            return RowMask(is_stuck=True)
        if not is_complete and not self._forbid_end(bits):
            return RowMask(is_stuck=True)
        return RowMask(bits=bits.raw)

    def _forbid_end(self, bits: "ctypes.Array[ctypes.c_char]") -> bool:
        """Forbids the tokens that end a text, which a grammar may name inside of one; whether any other is left."""
        for token in self._grammar.eos_token_ids:
            place = token // 8
            bits[place] = bits.raw[place] & ~(1 << token % 8) & 0xFF
        return bool(bits.raw.strip(b"\0"))

    def _reach(self, tokens: Sequence[int]) -> bool:
        """Moves to the text of these tokens; whether it may come. A token that ends the text is not consumed: it is
        allowed where the text is complete, as the last one alone."""
        eos = self._grammar.eos_token_ids
        self._has_failed = False
        tokens = list(tokens)
        self._roll_back(common_length(self._consumed, tokens))
        rest = tokens[len(self._consumed) :]  # what was consumed before has no end
        ends = next((i for i, token in enumerate(rest) if token in eos), len(rest))
        count = self._matcher.try_consume_tokens(rest[:ends]) if ends else 0
        self._consumed += rest[:count]
        if self._matcher.is_error():
            self._begin_again()
            self._has_failed = True
            return False
        if count < ends:
            return False
        return ends == len(rest) or (ends == len(rest) - 1 and self._matcher.is_accepting())

    def _roll_back(self, length: int) -> None:
        dropped = len(self._consumed) - length
        if dropped and not self._matcher.rollback(dropped):
            self._begin_again()
            return
        del self._consumed[length:]

    def _begin_again(self) -> None:
        """An error of the matcher is for ever: another one takes its place."""
        self._matcher = self._grammar.matcher()
        self._consumed = []


def only_token(bits: bytes | None) -> int | None:
    """The one token that may come; None if several may, or it does not matter."""
    allowed = 0 if bits is None else int.from_bytes(bits, "little")
    return allowed.bit_length() - 1 if allowed and not allowed & (allowed - 1) else None
