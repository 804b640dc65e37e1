"""Limits of sequences: length, vocabulary, number and lease. Plain data."""

from dataclasses import dataclass
from enum import StrEnum

from specpair.errors import InvalidFieldError
from specpair.options import SequenceOptions, check_count

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

    max_encoder_len: int | None = 0
    """Most tokens that the encoder reads; 0 without an encoder, None without a model, which reads nothing."""

    @property
    def most_of_one_client(self) -> int:
        """Most sequences that one client may have open."""
        return min(self.max_num_seqs, self.max_num_seqs_per_client or self.max_num_seqs)

    def check_encoder(self, options: SequenceOptions) -> None:
        """Raises InvalidFieldError unless there is something to read for the encoder, and only then."""
        most, count, field = self.max_encoder_len, len(options.encoder_ids), "encoder_token_ids"
        if most is None:
            return
        if not most and count:
            raise InvalidFieldError(field, "is set, but the model has no encoder", limit=0)
        if most and not count:
            raise InvalidFieldError(
                field, "is empty; the model has an encoder, which reads at least one token", limit=1
            )
        check_count(field, count, most)
        if count and (worst := max(options.encoder_ids)) >= self.vocab_size:
            raise InvalidFieldError(field, f"holds {worst}; ids are below {self.vocab_size}", limit=self.vocab_size - 1)

    def vocab_size_of(self, options: SequenceOptions) -> int:
        """The vocabulary size for a sequence. Raises InvalidFieldError if neither model nor options set it."""
        if self.vocab_size and not options.target_vocabulary:
            return self.vocab_size
        if options.vocab_size is None:
            raise InvalidFieldError("vocab_size", "must be set: nothing else limits the token ids")
        return options.vocab_size
