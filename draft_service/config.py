"""What the draft service is told; plain data, without torch."""

from dataclasses import dataclass

from specpair.engine_config import EngineConfig
from specpair.options import Drafter, check_range
from specpair.sequences.sequence_limits import LEASE_SECONDS


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """A draft model, or only drafters that need none.

    Raises InvalidFieldError for a number outside its limits.
    """

    engine: EngineConfig | None = None
    """The model and its limits; None serves without a model, within the limits below."""
    drafter: Drafter = Drafter.MODEL
    """What proposes where a request does not say."""
    table: str | None = None
    """A file of counts for the unigram and bigram drafters."""
    max_model_len: int = 131072
    """Longest sequence, prompt and output together."""
    max_num_seqs: int = 64
    """Most sequences open at once."""
    max_num_seqs_per_client: int | None = None
    """Most of them that one client may have; None for all."""
    sequence_lease: float = LEASE_SECONDS
    """Seconds after which a sequence that nobody touched is closed."""
    max_num_speculative_tokens: int = 16
    """Most tokens in one proposal."""

    def __post_init__(self) -> None:
        check_range("max_model_len", self.max_model_len, 2, 2**24)
        check_range("max_num_seqs", self.max_num_seqs, 1, 65536)
        if self.max_num_seqs_per_client is not None:
            check_range("max_num_seqs_per_client", self.max_num_seqs_per_client, 1, 65536)
        check_range("sequence_lease", self.sequence_lease, 0.1, 86400.0)
        check_range("max_num_speculative_tokens", self.max_num_speculative_tokens, 1, 64)
