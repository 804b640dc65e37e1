"""What a model process reports about itself. Plain data: the engine fills it, gRPC carries it."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from specpair.options import Drafter, SamplingOptions

NOT_QUANTISED = "none"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """How far a model with quantised weights is from its checkpoint, on a text that no training has seen."""

    mean_kl: float
    """Kullback-Leibler divergence of the next token's distribution from the checkpoint's, in nats, mean over tokens."""
    greedy_agreement: float
    """Share of tokens after which both find the same token the most likely, 0 to 1."""
    token_count: int


@dataclass(frozen=True, kw_only=True)
class PassCost:
    """What a forward pass took when the process started."""

    token_count: int
    """Tokens fed, all with logits."""
    seconds: float


class VocabularyMethod(StrEnum):
    """How a draft proposes for a target with another vocabulary."""

    TLI = "tli"
    """It draws from the tokens that both have."""
    SLEM = "slem"
    """It writes text, which is cut into the target's tokens."""


@dataclass(frozen=True, kw_only=True)
class VocabularyTranslation:
    """How a draft proposes in the ids of one target with another tokenizer."""

    target_vocabulary: str
    """Names the target's tokenizer: a SHA-256, 64 hexadecimal digits."""
    method: VocabularyMethod
    """Where the temperature is above 0."""
    greedy_method: VocabularyMethod
    overlap: float
    """Share of the draft's tokens of a text that the target has, too; 0 to 1."""
    shared_token_count: int


@dataclass(frozen=True, kw_only=True)
class EncoderInfo:
    """What callers of an encoder-decoder model need to know."""

    max_encoder_len: int
    """Most tokens that the encoder reads."""
    decoder_start_token_id: int
    """The prompt of the decoder, unless it is given."""


@dataclass(frozen=True, kw_only=True)
class SamplingDefaults:
    """What a model says of how to draw from it, for requests that do not. None leaves an option to SamplingOptions.

    Raises InvalidFieldError for a value outside its limits.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        SamplingOptions(**self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The options that the model says, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.6g}" for name, value in self.given.items())


NO_DEFAULTS = SamplingDefaults()


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The facts and limits of a model process: the fields of `specpair.v1.GetModelInfoResponse`."""

    instance_id: str
    model_name: str
    architecture: str
    parameter_count: int
    vocab_size: int
    max_model_len: int
    max_num_speculative_tokens: int
    max_num_seqs: int
    """Most sequences that the calling client may have open."""
    dtype: str
    device: str
    cache: str
    block_size: int
    block_count: int
    free_block_count: int
    sequence_count: int
    eos_token_ids: tuple[int, ...]
    deterministic: bool
    quantization: str = NOT_QUANTISED
    """How the weights are held: `int8`, `int4`, or `none` for as they are in the checkpoint."""
    divergence: Divergence | None = None
    """From the checkpoint, where it was measured."""
    pass_costs: tuple[PassCost, ...] = ()
    """Forward passes of several sizes, smallest first; empty where none were measured."""
    cached_token_seconds: float = 0.0
    """How much longer a pass takes for each token that its sequences have in the cache; 0 where that is unknown."""
    runs_trees: bool = False
    """Whether proposals may be trees of tokens."""
    masks_tokens: bool = False
    """Whether sequences may have a structured output."""
    tensor_parallel_size: int = 1
    """Processes that share the model."""
    runs_beams: bool = False
    """Whether beam search can use it."""
    runner: str = ""
    """How forward passes run, in words; empty without a model."""
    translations: tuple[VocabularyTranslation, ...] = ()
    """Draft: the targets with another vocabulary that it translates for."""
    drafters: tuple[Drafter, ...] = ()
    """Draft: the available drafters, the default one first. Target: those of its heads."""
    encoder_decoder: EncoderInfo | None = None
    """None for a model that has a decoder alone."""
    takes_draft_index: bool = False
    """Draft: whether its draws may be merged with those of others."""
    goes_on_plain: bool = False
    """Target: whether it goes on without a proposal, where it may and none is there."""
    takes_withheld_distributions: bool = False
    """Target: whether it begins with proposals whose distributions follow."""
    longest_run: int = 0
    """Target: the most rounds that it gives in one answer; 0 if it is to be asked for each."""
    sampling_defaults: SamplingDefaults = NO_DEFAULTS
    """Target: for requests that do not set these options."""
    own_draft: str = ""
    """Draft: what guesses the tokens of its model; empty if nothing does."""
    own_num_speculative_tokens: int = 0
    """Draft: the most tokens that are guessed for one pass."""


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer as text, so that a coordinator needs no model files."""

    tokenizer_json: bytes
    chat_template: str
    """Jinja source; empty if the model has none."""
    bos_token: str
    eos_token: str
