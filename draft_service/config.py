"""Configuration of the draft service. Plain data, without torch."""

from dataclasses import dataclass
from typing import Annotated

from specpair.engine_config import (
    EngineConfig,
    MaxNumSeqs,
    MaxNumSeqsPerClient,
    MaxNumSpeculativeTokens,
    SequenceLease,
    SequenceLength,
)
from specpair.flags import SPECULATION, Flag
from specpair.options import Drafter, check_fields
from specpair.sequences.sequence_limits import LEASE_SECONDS

TABLE_NAME = "tables.safetensors"
"""Name of the table file in the folder of a draft model."""


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """A draft model, or only drafters that need no model.

    Raises InvalidFieldError for a number outside its limits.
    """

    engine: EngineConfig | None = None
    """The model and its limits; None serves without a model, with the limits below."""
    drafter: Annotated[
        Drafter,
        Flag(
            "What proposes where a request does not say: the draft model; n-gram counts or copies (prompt-lookup) of "
            "the text so far; bigram or unigram counts of a corpus; uniform noise; or ngram-model, the model where "
            "n-grams know nothing. All are exact, and all but the two with a model cost next to nothing. A model that "
            "is not named is loaded for those two alone.",
            SPECULATION,
        ),
    ] = Drafter.MODEL
    table: Annotated[
        str | None,
        Flag(
            "File of counts for bigram and unigram, as models/train_tables.py writes it, of the tokenizer that draft "
            f"and target share. Default: {TABLE_NAME} in the model's folder; without a model the bundled one.",
            SPECULATION,
        ),
    ] = None
    max_model_len: Annotated[int, SequenceLength] = 131072
    """Longest sequence, prompt and output together."""
    max_num_seqs: MaxNumSeqs = 64
    max_num_seqs_per_client: MaxNumSeqsPerClient = None
    sequence_lease: SequenceLease = LEASE_SECONDS
    max_num_speculative_tokens: MaxNumSpeculativeTokens = 16

    def __post_init__(self) -> None:
        check_fields(self)
