"""The options of a request: each is defined and checked here, and nowhere else.

Plain data, without torch or grpc, so that every process and front end can share it.
"""

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, get_type_hints

from specpair.errors import InvalidFieldError
from specpair.flags import Range

MAX_TEMPERATURE = 100.0
MAX_UINT32 = 2**32 - 1
"""Largest number that the messages' counts and token ids can hold."""
MAX_SEED = 2**64 - 1
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_PENALTY = 2.0
MAX_BIAS = 100.0
MAX_BIASES = 1024
MAX_LISTED_TOKENS = 16384
MAX_STOP_TOKENS = 128
TOKEN_LIST_LIMITS = {
    "allowed_token_ids": MAX_LISTED_TOKENS,
    "banned_token_ids": MAX_LISTED_TOKENS,
    "stop_token_ids": MAX_STOP_TOKENS,
}
MAX_LOGPROBS = 20
MAX_DRAFT_INDEX = 63
MAX_STRUCTURE_BYTES = 65536
MAX_CHOICES = 1024


class Rule(StrEnum):
    """How the target judges a block of draft tokens."""

    TOKEN = "token"
    BLOCK = "block"
    COUPLED = "coupled"


class WorkAhead(StrEnum):
    """Whether the draft prepares proposals for likely outcomes while the target verifies."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Merge(StrEnum):
    """What becomes of the proposals of several drafts."""

    TREE = "tree"
    """They are merged into one tree of tokens."""
    NONE = "none"
    """One draft proposes alone."""


class OwnDraft(StrEnum):
    """What accelerates the draft model."""

    NONE = "none"
    NGRAM = "ngram"
    PROMPT_LOOKUP = "prompt-lookup"


class Encoding(StrEnum):
    """How the draft's distributions are sent."""

    SPARSE = "sparse"
    DENSE = "dense"


class Drafter(StrEnum):
    """What proposes tokens. All are lossless under every rule; `specpair.v1.Drafter` describes each."""

    MODEL = "model"
    NGRAM = "ngram"
    PROMPT_LOOKUP = "prompt-lookup"
    UNIGRAM = "unigram"
    BIGRAM = "bigram"
    UNIFORM = "uniform"
    NGRAM_MODEL = "ngram-model"
    EAGLE = "eagle"
    MEDUSA = "medusa"
    BLOCKWISE = "blockwise"
    PASS = "pass"
    MTP = "mtp"


ON_THE_TARGET = (Drafter.EAGLE, Drafter.MEDUSA, Drafter.BLOCKWISE, Drafter.PASS, Drafter.MTP)
"""Drafters in the target service."""
FROM_TEXT = (Drafter.NGRAM, Drafter.PROMPT_LOOKUP)
"""Drafters that read nothing but the text. The coordinator, which owns it, runs them itself where a request or its
configuration names one; a draft service has them, too."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn from logits.

    Options apply in the order that vLLM documents: allowed and banned tokens, min_tokens, logit bias, penalties
    (repetition, frequency, presence), temperature, min-p, top-k, top-p. Token ids are kept sorted.
    Raises InvalidFieldError for a value outside its limits.
    """

    temperature: float = 1.0
    """Divides the logits; 0 is greedy."""
    top_k: int = 0
    """Keeps the k most likely tokens, and tokens that tie with the last of them; 0 keeps all."""
    top_p: float = 1.0
    """Keeps the smallest set of tokens whose probability reaches top_p."""
    min_p: float = 0.0
    """Drops tokens whose probability is below min_p times that of the most likely one."""
    repetition_penalty: float = 1.0
    """Divides the positive logits of tokens seen in prompt or output, multiplies the negative ones (CTRL)."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens seen in the output."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit once for each time the output has it."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of single tokens."""
    allowed_token_ids: tuple[int, ...] = ()
    """The only tokens that may be drawn; empty allows all."""
    banned_token_ids: tuple[int, ...] = ()
    """Tokens that are never drawn."""
    min_tokens: int = 0
    """Length of the output before which no stop token may be drawn."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the output. Sampling uses them only for min_tokens."""
    seed: int = 0
    """Key of every random draw of the sequence."""

    def __post_init__(self) -> None:
        check_range("sampling.temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        check_range("sampling.top_k", self.top_k, 0, MAX_UINT32)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidFieldError("sampling.top_p", f"is {self.top_p:.6g}; it must be above 0 and at most 1", limit=1)
        check_range("sampling.min_p", self.min_p, 0.0, 1.0)
        check_range(
            "sampling.repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY
        )
        check_range("sampling.presence_penalty", self.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
        check_range("sampling.frequency_penalty", self.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
        check_range("sampling.min_tokens", self.min_tokens, 0, MAX_UINT32)
        check_range("sampling.seed", self.seed, 0, MAX_SEED)
        self._check_bias()
        self._check_lists()

    def _check_bias(self) -> None:
        check_count("sampling.logit_bias", len(self.logit_bias), MAX_BIASES)
        for token_id, bias in self.logit_bias:
            check_range(f"sampling.logit_bias[{token_id}]", bias, -MAX_BIAS, MAX_BIAS)
        object.__setattr__(self, "logit_bias", tuple(sorted(dict(self.logit_bias).items())))

    def _check_lists(self) -> None:
        for name, limit in TOKEN_LIST_LIMITS.items():
            check_count(f"sampling.{name}", len(getattr(self, name)), limit)
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if self.allowed_token_ids:
            self._check_choice(self.allowed_token_ids)

    def _check_choice(self, among: Iterable[int]) -> None:
        """Raises InvalidFieldError unless some token of `among` may be drawn at every length of the output."""
        left = set(among).difference(self.banned_token_ids)
        if self.min_tokens:
            left.difference_update(self.stop_token_ids)
        if not left:
            raise InvalidFieldError(
                "sampling.allowed_token_ids", "leaves no token that is not banned or, before min_tokens, a stop token"
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalizes(self) -> bool:
        """Whether any penalty changes the logits of tokens that were seen."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def adjusts_logits(self) -> bool:
        """Whether any option changes single logits before the temperature is applied."""
        lists = self.allowed_token_ids or self.banned_token_ids or self.logit_bias
        return bool(lists) or self.penalizes or (self.min_tokens > 0 and bool(self.stop_token_ids))

    def with_seed(self, seed: int) -> "SamplingOptions":
        """The same options with another seed. Only the seed is checked."""
        check_range("sampling.seed", seed, 0, MAX_SEED)
        copied = copy(self)
        object.__setattr__(copied, "seed", seed)
        return copied

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises InvalidFieldError unless all named tokens are in the vocabulary and some token may be drawn."""
        for name, token_ids in self._named_tokens().items():
            if token_ids and (worst := max(token_ids)) >= vocab_size:
                raise InvalidFieldError(
                    f"sampling.{name}", f"holds {worst}; ids are below {vocab_size}", limit=vocab_size - 1
                )
        if not self.allowed_token_ids and len(self.banned_token_ids) + len(self.stop_token_ids) >= vocab_size:
            self._check_choice(range(vocab_size))

    def within(self, vocab_size: int) -> "SamplingOptions":
        """The same options restricted to ids below `vocab_size`. Raises InvalidFieldError if no token may be drawn."""
        if all(not ids or max(ids) < vocab_size for ids in self._named_tokens().values()):
            narrowed = self
        else:
            allowed = _below(vocab_size, self.allowed_token_ids)
            if self.allowed_token_ids and not allowed:
                raise InvalidFieldError(
                    "sampling.allowed_token_ids", f"has no id below {vocab_size}", limit=vocab_size - 1
                )
            narrowed = replace(
                self,
                logit_bias=tuple((token_id, bias) for token_id, bias in self.logit_bias if token_id < vocab_size),
                allowed_token_ids=allowed,
                banned_token_ids=_below(vocab_size, self.banned_token_ids),
                stop_token_ids=_below(vocab_size, self.stop_token_ids),
            )
        narrowed.check_vocabulary(vocab_size)
        return narrowed

    def _named_tokens(self) -> dict[str, tuple[int, ...]]:
        return {
            "logit_bias": tuple(token_id for token_id, _ in self.logit_bias),
            "allowed_token_ids": self.allowed_token_ids,
            "banned_token_ids": self.banned_token_ids,
            "stop_token_ids": self.stop_token_ids,
        }


class StructureKind(StrEnum):
    """How a structured output is described."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    GRAMMAR = "grammar"
    CHOICES = "choices"


@dataclass(frozen=True, kw_only=True)
class StructuredOutput:
    """What an output has to look like (`specpair.v1.StructuredOutput`). Raises InvalidFieldError if it is empty or too
    large; `specpair.grammars` finds whether it can be used."""

    kind: StructureKind
    source: str = ""
    """The schema, expression or grammar; choices as a JSON array."""

    def __post_init__(self) -> None:
        if self.kind is not StructureKind.JSON_OBJECT:
            size = len(self.source.encode(errors="replace"))
            check_range(f"structured_output.{self.kind} bytes", size, 1, MAX_STRUCTURE_BYTES)


@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """Options that are fixed when a sequence is opened.

    Raises InvalidFieldError for a value outside its limits, or for values that contradict each other.
    """

    sampling: SamplingOptions
    rule: Rule = Rule.BLOCK
    encoding: Encoding = Encoding.SPARSE
    vocab_size: int | None = None
    """Draft: token ids at or above it are never proposed."""
    lenience: float = 1.0
    """Target: below 1 it accepts more tokens than is exact, and the output is no longer the target's own (Leviathan et
    al., "Fast Inference from Transformers via Speculative Decoding", appendix A.5)."""
    logprobs: int | None = None
    """Target: report the logprob of each committed token, and of this many of the likeliest tokens."""
    drafter: Drafter | None = None
    """Draft: which drafter proposes; None is the service's default."""
    structured_output: StructuredOutput | None = None
    """What the tokens after the prompt have to look like; None for anything. A draft follows it if it can."""
    encoder_ids: tuple[int, ...] = ()
    """What the encoder reads; empty for a model without one."""
    draft_index: int = 0
    """Draft: its place among several whose proposals are merged, from 1; each place has random numbers of its own. 0
    for one alone."""
    target_vocabulary: str = ""
    """Draft: token ids are those of the target whose tokenizer has this name; empty for the draft's own."""

    @property
    def ignores_proposals(self) -> bool:
        """Whether the output is the same whatever is proposed: at temperature 0 and under the coupled rule."""
        return self.lenience == 1.0 and (self.rule is Rule.COUPLED or self.sampling.temperature == 0.0)

    def __post_init__(self) -> None:
        check_range("draft_index", self.draft_index, 0, MAX_DRAFT_INDEX)
        if self.vocab_size is not None:
            check_range("vocab_size", self.vocab_size, 1, MAX_UINT32)
        check_lenience(self.lenience, self.rule)
        if self.logprobs is not None:
            check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)


def check_lenience(lenience: float, rule: Rule) -> None:
    """Raises InvalidFieldError unless the lenience is in (0, 1], and 1 except under the token rule."""
    if not 0.0 < lenience <= 1.0:
        raise InvalidFieldError("lenience", f"is {lenience:.6g}; it must be above 0 and at most 1", limit=1)
    if lenience < 1.0 and rule is not Rule.TOKEN:
        raise InvalidFieldError("lenience", f"is {lenience:.6g}; below 1 it requires the token rule, not {rule}")


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidFieldError unless `low <= value <= high`; NaN is outside every range."""
    if math.isnan(value) or not low <= value <= high:
        raise InvalidFieldError(field, f"is {value}; it must be between {low} and {high}", limit=high)


def check_fields(config: Any, prefix: str = "") -> None:
    """Checks every field of a configuration that has a Range. Raises InvalidFieldError."""
    for name, limits in _ranges(type(config)).items():
        if (value := getattr(config, name)) is not None:
            check_range(prefix + name, value, limits.low, limits.high)


@cache
def _ranges(kind: type) -> dict[str, Range]:
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: entry for name, hint in hints for entry in getattr(hint, "__metadata__", ()) if type(entry) is Range}


def check_count(field: str, count: int, limit: int) -> None:
    """Raises InvalidFieldError if a list has more than `limit` entries."""
    if count > limit:
        raise InvalidFieldError(field, f"has {count} entries; at most {limit} are allowed", limit=limit)


def _below(limit: int, token_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(token_id for token_id in token_ids if token_id < limit)
