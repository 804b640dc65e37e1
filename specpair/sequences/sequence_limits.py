"""What a sequence may be, and how many there may be; plain data."""

from dataclasses import dataclass
from enum import StrEnum

from specpair.errors import InvalidFieldError
from specpair.options import SequenceOptions

LEASE_SECONDS = 300.0


class NoRoom(StrEnum):
    """Why a sequence was not opened."""

    FULL = "full"
    """So many are open that no client may open another."""
    CLIENT_LIMIT = "client_limit"
    """So many of that client's are."""


@dataclass(frozen=True, kw_only=True)
class SequenceLimits:
    """What a sequence may be."""

    max_model_len: int
    max_num_seqs: int
    """Sequences open at once, those of all clients."""
    vocab_size: int
    """Token ids are below it; 0 without a model: each sequence then says its own."""
    lease_seconds: float = LEASE_SECONDS
    """A sequence that nobody touched for so long is closed."""
    max_num_seqs_per_client: int | None = None
    """Sequences of one client; None for no limit but that of all."""

    @property
    def most_of_one_client(self) -> int:
        """Sequences that whoever asks may have open."""
        return min(self.max_num_seqs, self.max_num_seqs_per_client or self.max_num_seqs)

    def vocab_size_of(self, options: SequenceOptions) -> int:
        """What token ids of a sequence are below. Raises InvalidFieldError if nobody says."""
        if self.vocab_size:
            return self.vocab_size
        if options.vocab_size is None:
            raise InvalidFieldError("vocab_size", "must be set: without a model nothing else limits the token ids")
        return options.vocab_size
