"""Logprobs of a whole text: fed in pieces, so that never more than a few rows of logits exist at once."""

from dataclasses import dataclass, field

from torch import Tensor

from specpair.engine.engine import Engine
from specpair.engine.sequence import Sequence, Work
from specpair.errors import NotFiniteError
from specpair.speculation.logprobs import TokenLogprobs, token_logprobs
from specpair.speculation.sampling import finite_rows

MOST_ROWS = 64


@dataclass(eq=False, kw_only=True)
class ScoreWork(Work):
    """All tokens but the last are fed, a piece at a time; each row scores the token behind it."""

    token_ids: list[int]
    piece_length: int
    top_count: int
    scores: list[TokenLogprobs] = field(default_factory=list)

    def take(self, logits: Tensor) -> None:
        """Scores the piece that was fed, by its logits `[piece, vocabulary]`, and goes on to the next."""
        if not bool(finite_rows(logits).all()):
            self.error, self.done = NotFiniteError(), True
            return
        fed = len(self.sequence.tokens)
        following = self.token_ids[fed - self.row_count + 1 : fed + 1]
        self.scores += token_logprobs(logits, following, [self.top_count] * self.row_count)
        piece = self.token_ids[fed : min(fed + self.piece_length, len(self.token_ids) - 1)]
        self.sequence.tokens.extend(piece)
        self.row_count = len(piece)
        self.done = not piece


async def score(engine: Engine, sequence: Sequence, top_count: int, token_budget: int) -> list[TokenLogprobs]:
    """The logprobs of a new sequence's tokens, all but the first. Leaves it with the tokens that were fed."""
    token_ids = list(sequence.tokens)
    if len(token_ids) == 1:
        return []
    piece_length = min(MOST_ROWS, token_budget)
    first = token_ids[: min(piece_length, len(token_ids) - 1)]
    sequence.replace_from(0, first)
    work = ScoreWork(
        sequence=sequence,
        row_count=len(first),
        token_ids=token_ids,
        piece_length=piece_length,
        top_count=top_count,
    )
    await engine.run(work)
    return work.scores
