"""One request to make, and what came of it."""

from dataclasses import dataclass
from typing import TypeAlias

from specpair.options import Rule, SamplingOptions

Prompt: TypeAlias = str | tuple[int, ...]
"""Text, or token ids where the server has no tokenizer."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A request. End-of-text tokens do not end it, so that every output is as long as the others."""

    prompt: Prompt
    sampling: SamplingOptions
    rule: Rule
    num_speculative_tokens: int
    max_tokens: int
    wants_gaps: bool = False
    """Ask for the logprobs of the two likeliest tokens."""
    attempt: int = 0
    """Tells apart requests that are otherwise the same."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """An output."""

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...] | None = None
    """Logprob of the likeliest token less that of the next, for each token; None if the server reported none."""
    round_count: int = 0
    draft_token_count: int = 0
    accepted_token_count: int = 0
    fallback_count: int = 0
    """Rounds that went without the draft because it did not answer."""
