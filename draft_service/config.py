"""The configuration of the draft service: plain data, without torch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from specpair.engine_config import (
    MODEL_KINDS,
    EngineConfig,
    MaxNumSeqs,
    MaxNumSeqsPerClient,
    MaxNumSpeculativeTokens,
    SequenceLease,
    SequenceLength,
)
from specpair.errors import InvalidFieldError
from specpair.flags import SPECULATION, Flag, Range
from specpair.options import Drafter, OwnDraft, check_fields
from specpair.sequences.sequence_limits import LEASE_SECONDS

TABLE_NAME = "tables.safetensors"
"""Name of the table in the folder of a draft model."""


class VocabularyChoice(StrEnum):
    """How a draft proposes for a target with another vocabulary."""

    AUTO = "auto"
    TLI = "tli"
    SLEM = "slem"


DRAFT_SHARE = 0.8
"""Of the memory of a GPU that the service may use: that of the draft model, where a second model shares it."""


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """A draft model, or only drafters that do not need one.

    Raises InvalidFieldError for a number outside its limits.
    """

    engine: EngineConfig | None = None
    """The model and its limits; None serves without a model, with the limits below."""
    drafter: Annotated[
        Drafter,
        Flag(
            "Drafter of requests that do not choose one. model: the draft model; ngram: n-gram counts of the text so "
            "far; prompt-lookup: copies from that text; bigram, unigram: counts of a corpus; uniform: random tokens; "
            "ngram-model: n-grams, or the model where they find nothing. All are exact. Only model and ngram-model "
            "load a model by default; the others cost next to nothing. eagle, medusa, blockwise, pass and mtp are "
            "heads of the target, which --head loads there and requests choose.",
            SPECULATION,
        ),
    ] = Drafter.MODEL
    table: Annotated[
        str | None,
        Flag(
            "File of counts for bigram and unigram, written by models/train_tables.py for the tokenizer of draft and "
            f"target. Default: {TABLE_NAME} in the model's folder; without a model, the bundled file.",
            SPECULATION,
        ),
    ] = None
    own_draft: Annotated[
        str,
        Flag(
            "Accelerates the draft model itself: its tokens are guessed by n-gram counts (ngram), by copies of the "
            f"text so far (prompt-lookup), or by a still smaller model with the same tokens ({MODEL_KINDS}). Right "
            "guesses save passes. It changes no token; the draft then does not work ahead. none: it is off.",
            SPECULATION,
            metavar="none|ngram|prompt-lookup|MODEL",
        ),
    ] = OwnDraft.NONE.value
    own_num_speculative_tokens: Annotated[
        int, Range(1, 16, "both"), Flag("Most tokens that --own-draft guesses for one pass.", SPECULATION)
    ] = 3
    max_model_len: Annotated[int, SequenceLength] = 131072
    """Longest sequence, prompt and output together."""
    max_num_seqs: MaxNumSeqs = 64
    max_num_seqs_per_client: MaxNumSeqsPerClient = None
    sequence_lease: SequenceLease = LEASE_SECONDS
    max_num_speculative_tokens: MaxNumSpeculativeTokens = 16
    vocabulary: Annotated[
        VocabularyChoice,
        Flag(
            "How to propose for a target with another vocabulary. tli: draws from the tokens that both have; slem: "
            "writes text, which is cut into the target's tokens; auto: by how many tokens of a text both have. All are "
            "exact.",
            SPECULATION,
        ),
    ] = VocabularyChoice.AUTO
    max_ahead_rows: Annotated[
        int,
        Range(0, 4096),
        Flag(
            "Most proposals that the draft model prepares at a time for steps that may come, all sequences together; "
            "each is a row of its forward passes. 0: it does not work ahead.",
            SPECULATION,
        ),
    ] = 64

    @property
    def second_model(self) -> str | None:
        """The model that guesses the draft model's tokens, if one does."""
        return None if self.own_draft in set(OwnDraft) else self.own_draft

    def __post_init__(self) -> None:
        check_fields(self)
        if self.own_draft != OwnDraft.NONE and self.engine is None:
            raise InvalidFieldError(
                "own_draft", f"is {self.own_draft}; it accelerates a draft model, and there is none"
            )
