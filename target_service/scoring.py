"""Logprobs of a whole text, fed in pieces so that only a few rows of logits exist at once."""

from dataclasses import dataclass, field

from torch import Tensor

from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.sequences.sequence import Sequence
from specpair.speculation.logprobs import TokenLogprobs, token_logprobs
from specpair.speculation.sampling import finite_rows

MOST_ROWS = 64


@dataclass(eq=False, kw_only=True)
class ScoredText:
    """A text and its scores so far. Belongs to the device thread while a work is under way."""

    token_ids: list[int]
    top_count: int
    piece_length: int
    scores: list[TokenLogprobs] = field(default_factory=list)
    """Scores of its first tokens; the very first token has none."""
    wanted_by: int = 0
    """Calls that wait for it, counted by the event loop. At 0 the work stops after its next piece."""

    @property
    def is_complete(self) -> bool:
        return len(self.scores) == len(self.token_ids) - 1

    def next_piece(self) -> list[int]:
        """The next tokens to feed. The last token of a text is not fed: no token follows it."""
        fed = len(self.scores)
        return self.token_ids[fed : min(fed + self.piece_length, len(self.token_ids) - 1)]

    def take(self, logits: Tensor) -> None:
        """Adds scores from the logits `[piece, vocabulary]` of the next piece: each row scores the token after it."""
        first = len(self.scores) + 1
        following = self.token_ids[first : first + len(logits)]
        self.scores += token_logprobs(logits, following, [self.top_count] * len(logits))


@dataclass(eq=False, kw_only=True)
class ScoreWork(Work):
    """Feeds a text piece by piece, until it is complete or no call waits for it."""

    text: ScoredText

    def take(self, logits: Tensor) -> None:
        """Scores the piece that was fed, and continues with the next one."""
        if not bool(finite_rows(logits).all()):
            self.fail(NotFiniteError())
            return
        self.text.take(logits)
        piece = self.text.next_piece()
        self.done = not piece or not self.text.wanted_by
        if not self.done:
            self.sequence.tokens.extend(piece)
            self.row_count = len(piece)


def score_work(sequence: Sequence, text: ScoredText) -> ScoreWork:
    """Continues where the text's scores end: sets the sequence's tokens up to there plus the next piece."""
    fed, piece = len(text.scores), text.next_piece()
    sequence.replace_from(fed, piece)
    return ScoreWork(sequence=sequence, row_count=len(piece), text=text)
