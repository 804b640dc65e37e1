"""Scores of trees of beams: the call, its answer, and the engine's work between them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.speculation.beams.beam_tree import BeamTree
from specpair.speculation.largest import largest
from specpair.speculation.sampling import finite_rows

MOST_ROWS = 64
"""Rows of logprobs that exist at once."""
ANSWER_BYTES = 1024
ENTRY_BYTES = 64
"""Memory of a token id and its logprob, in lists."""


@dataclass(frozen=True, kw_only=True)
class ScoreTreeCall:
    """A decoded call, checked for form."""

    sequence_id: str
    step: int
    base_length: int
    appended: list[int]
    tree: BeamTree
    asked: list[int]
    """Nodes of the tree, or ROOT."""
    top_count: int


@dataclass(frozen=True, kw_only=True)
class TreeScores:
    """The likeliest tokens after each asked node, `[asked * top_count]`, most likely first."""

    token_ids: list[int]
    logprobs: list[float]
    queue_time: float
    """Seconds before the first forward pass."""
    compute_time: float
    """Seconds from the first forward pass to the scores."""
    rollback_time: float
    batch_token_count: int
    cached_token_count: int = 0
    """Tokens with which the sequence's cache began."""
    path: tuple[int, ...] = ()
    """No token was accepted, and none was chosen: a verification on condition of this answer finds it not met."""
    next_token: int = -1

    @property
    def byte_count(self) -> int:
        """Approximate memory in bytes."""
        return ANSWER_BYTES + ENTRY_BYTES * len(self.token_ids)


@dataclass(eq=False, kw_only=True)
class TreeScoreWork(Work):
    """The engine's work for a call: its rows are the last committed token and the tree's."""

    asked: list[int]
    top_count: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def take(self, logits: Tensor) -> None:
        """Scores from the logits `[row_count, vocabulary]`. The tree leaves the sequence."""
        rows = torch.tensor([1 + node for node in self.asked], device=logits.device)
        for some in rows.split(MOST_ROWS):
            picked = logits[some]
            if not bool(finite_rows(picked).all()):
                self.fail(NotFiniteError())
                return
            values, ids = largest(picked.float().log_softmax(-1), min(self.top_count, logits.shape[1]))
            self.token_ids += ids.flatten().tolist()
            self.logprobs += values.flatten().tolist()
        tokens = self.sequence.tokens
        del tokens[len(tokens) - self.row_count + 1 :]
        self.done = True
