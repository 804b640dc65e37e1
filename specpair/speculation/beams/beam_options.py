"""Options of a beam search, with their limits."""

from dataclasses import dataclass
from enum import StrEnum

from specpair.errors import InvalidFieldError
from specpair.options import check_range

MAX_BEAMS = 16
MIN_LENGTH_PENALTY, MAX_LENGTH_PENALTY = -2.0, 5.0
MAX_TREE_NODES = 256
"""Most tokens of a tree of beams. Each is a row of logits in the target's pass."""
MAX_TOP_COUNT = 512
"""Most tokens that are reported after one node."""


class EarlyStopping(StrEnum):
    """When a search with enough finished beams ends. The names stand for transformers' False, True and "never"."""

    HEURISTIC = "heuristic"
    FIRST = "first"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """A beam search. Raises InvalidFieldError for a value outside its limits."""

    num_beams: int
    length_penalty: float = 1.0
    """A finished beam's sum of logprobs is divided by its length to this power."""
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC
    max_tokens: int
    """Longest output."""
    min_tokens: int = 0
    """Length of the output before which no stop token may come."""
    stop_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        check_range("num_beams", self.num_beams, 1, MAX_BEAMS)
        check_range("length_penalty", self.length_penalty, MIN_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        if self.top_count > MAX_TOP_COUNT:
            problem = f"is {self.num_beams} with {len(self.stop_token_ids)} stop tokens; together they are too many"
            raise InvalidFieldError("num_beams", problem, limit=MAX_TOP_COUNT)

    @property
    def kept_count(self) -> int:
        """Continuations that a step looks at: if all of the best end with a stop token, enough are left to go on."""
        return max(2, 1 + len(self.stop_token_ids)) * self.num_beams

    @property
    def top_count(self) -> int:
        """Tokens that a step needs after each beam."""
        return self.kept_count + (len(self.stop_token_ids) if self.min_tokens else 0)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises InvalidFieldError unless the first step, which has one beam, finds all that it looks at."""
        if self.top_count > vocab_size:
            problem = f"is {self.num_beams}; a step needs {self.top_count} tokens and the vocabulary has {vocab_size}"
            raise InvalidFieldError("num_beams", problem, limit=vocab_size)
