"""What a model process reports about itself. Plain data: the engine fills it, gRPC carries it."""

from dataclasses import dataclass

from specpair.options import Drafter


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
    drafters: tuple[Drafter, ...] = ()
    """Draft: the available drafters, the default one first."""


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer as text, so that a coordinator needs no model files."""

    tokenizer_json: bytes
    chat_template: str
    """Jinja source; empty if the model has none."""
    bos_token: str
    eos_token: str
