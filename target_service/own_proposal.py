"""A proposal that the target's own head made with a verdict."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from specpair.drafting import sampler_of
from specpair.errors import InvalidDistributionError
from specpair.options import Drafter, Encoding, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.count_row import CountRow
from specpair.speculation.counted_rows import SentRows
from specpair.speculation.outlook import Outlook
from specpair.speculation.trees.token_tree import TokenTree
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import decode, encode_dense

KEPT = "proposal.distributions.kept"


@dataclass(eq=False, kw_only=True)
class OwnDraft:
    """A proposal that is being drawn: a `specpair.drafting.Drafting`."""

    held: HeldSequence[Any]
    """With `sequence` in place of the sequence that the target feeds."""
    sequence: Sequence
    step: int
    """The step after the verdict's, which will verify it."""
    count: int
    min_confidence: float = 0.0
    confidence: float = 1.0
    tokens: list[int] = field(default_factory=list)
    counts: list[CountRow] = field(default_factory=list)
    dense: list[Tensor] = field(default_factory=list)
    bits: list[int] = field(default_factory=list)
    looks: bool = False
    outlooks: list[Outlook] = field(default_factory=list)
    rank: int = 0
    race_step: int | None = None
    done: bool = False
    error: Exception | None = None
    parents: tuple[int, ...] = ()
    """Of the tokens of a tree, as indices among them; empty for a chain."""

    @classmethod
    def after(
        cls, held: HeldSequence[Any], tokens: list[int], step: int, count: int, min_confidence: float = 0.0
    ) -> Self:
        """A draft of `count` tokens after these ones, the committed tokens of `held`."""
        sequence = Sequence(list(tokens))
        held = held.branch(sequence)
        return cls(held=held, sequence=sequence, step=step, count=count, min_confidence=min_confidence)

    def __post_init__(self) -> None:
        self.options = own_options(self.held.options)
        self.sampler = sampler_of(self.options)
        self.length = len(self.sequence.tokens)
        """Tokens before the first that it draws."""


def own_options(options: SequenceOptions) -> SequenceOptions:
    """How the proposal is drawn: as the sequence says, but a blockwise one takes the likeliest tokens, which are then
    certain under every rule."""
    if options.drafter is not Drafter.BLOCKWISE:
        return options
    return replace(options, sampling=replace(options.sampling, temperature=0.0), encoding=Encoding.SPARSE)


@dataclass(frozen=True, kw_only=True)
class OwnProposal:
    """What was drawn. The caller repeats the tokens; the distributions stay here until the next verdict."""

    step: int
    """Of the verdict."""
    length: int
    """Committed tokens before it."""
    token_ids: list[int]
    parents: tuple[int, ...]
    """As `OwnDraft` has them."""
    rows: SentRows | None
    """None if the tokens were certain, or the rule reads no distributions."""

    @classmethod
    def of(cls, draft: OwnDraft, vocab_size: int) -> "OwnProposal | None":
        """None if nothing could be drawn."""
        if not draft.tokens:
            return None
        message = None
        if draft.dense:
            message = encode_dense(torch.stack(draft.dense))
        elif not all(row.is_one_hot for row in draft.counts):
            message = encode_counts(draft.counts)
        rows = None if message is None else decode(message, draft.tokens, vocab_size)
        return cls(step=draft.step - 1, length=draft.length, token_ids=draft.tokens, parents=draft.parents, rows=rows)

    @cached_property
    def tree(self) -> TokenTree | None:
        """The tokens as a tree; None for a chain. Those of a tree are certain."""
        return TokenTree(tokens=tuple(self.token_ids), parents=self.parents) if self.parents else None

    @property
    def byte_count(self) -> int:
        """Memory of the distributions."""
        return 0 if self.rows is None else self.rows.byte_count

    def beginning(self, step: int, length: int, token_ids: list[int]) -> SentRows:
        """The distributions of its first tokens, which a call after `length` tokens repeats. Raises
        InvalidDistributionError if this is another proposal."""
        is_same = (self.step, self.length) == (step, length) and self.token_ids[: len(token_ids)] == token_ids
        if not is_same or self.rows is None:
            raise not_kept(step)
        return self.rows.beginning(len(token_ids))


def not_kept(step: int) -> InvalidDistributionError:
    return InvalidDistributionError(KEPT, f"names the verdict of step {step}, whose proposal is not here")
