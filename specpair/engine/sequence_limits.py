"""What a sequence may be; plain data."""

from dataclasses import dataclass

from specpair.errors import InvalidFieldError
from specpair.options import SequenceOptions

LEASE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class SequenceLimits:
    """What a sequence may be."""

    max_model_len: int
    max_num_seqs: int
    vocab_size: int
    """Token ids are below it; 0 without a model: each sequence then says its own."""
    lease_seconds: float = LEASE_SECONDS
    """A sequence that nobody touched for so long is closed."""

    def vocab_size_of(self, options: SequenceOptions) -> int:
        """What token ids of a sequence are below. Raises InvalidFieldError if nobody says."""
        if self.vocab_size:
            return self.vocab_size
        if options.vocab_size is None:
            raise InvalidFieldError("vocab_size", "must be set: without a model nothing else limits the token ids")
        return options.vocab_size
