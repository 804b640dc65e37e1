"""One request, and its output."""

from dataclasses import dataclass
from typing import TypeAlias

from specpair.options import Rule, SamplingOptions, WorkAhead

Prompt: TypeAlias = str | tuple[int, ...]
"""Text, or token ids if the server has no tokenizer."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A request. End-of-text tokens do not end it, so that all outputs have the same length."""

    prompt: Prompt
    sampling: SamplingOptions
    rule: Rule
    num_speculative_tokens: int
    max_tokens: int
    work_ahead: WorkAhead | None = None
    """Whether the draft works ahead; None for the server's default."""
    num_tree_tokens: int | None = None
    """Tokens of a tree at most, 0 for chains; None for the server's default."""
    wants_gaps: bool = False
    """Ask for the logprobs of the two likeliest tokens."""
    attempt: int = 0
    """Distinguishes requests that are otherwise the same."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """An output."""

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...] | None = None
    """For each token the logprob of the likeliest token minus that of the second; None if the server reports none."""
    round_count: int = 0
    draft_token_count: int = 0
    accepted_token_count: int = 0
    ahead_count: int = 0
    """Rounds whose proposal was prepared, or begun, while the round before was verified."""
    fallback_count: int = 0
    """Rounds without a proposal because the draft did not answer."""
