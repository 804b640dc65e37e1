"""Limits of sequences: length, vocabulary, number and lease. Plain data."""

from dataclasses import dataclass
from enum import StrEnum

from specpair.errors import InvalidFieldError
from specpair.options import SequenceOptions

LEASE_SECONDS = 300.0


class NoRoom(StrEnum):
    """Why a sequence was not opened."""

    FULL = "full"
    """The limit of all clients together is reached."""
    CLIENT_LIMIT = "client_limit"
    """The client's own limit is reached."""


@dataclass(frozen=True, kw_only=True)
class SequenceLimits:
    """Limits of the sequences of a process."""

    max_model_len: int
    max_num_seqs: int
    """Most sequences open at once, of all clients."""
    vocab_size: int
    """Token ids are below it. 0 without a model: then each sequence has its own limit."""
    lease_seconds: float = LEASE_SECONDS
    """A sequence that was unused for this long is closed."""
    max_num_seqs_per_client: int | None = None
    """Most sequences of one client; None for no separate limit."""

    @property
    def most_of_one_client(self) -> int:
        """Most sequences that one client may have open."""
        return min(self.max_num_seqs, self.max_num_seqs_per_client or self.max_num_seqs)

    def vocab_size_of(self, options: SequenceOptions) -> int:
        """The vocabulary size for a sequence. Raises InvalidFieldError if neither model nor options set it."""
        if self.vocab_size and not options.target_vocabulary:
            return self.vocab_size
        if options.vocab_size is None:
            raise InvalidFieldError("vocab_size", "must be set: nothing else limits the token ids")
        return options.vocab_size
