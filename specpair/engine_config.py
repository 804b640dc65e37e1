"""What one engine is told; plain data, without torch."""

from dataclasses import dataclass
from typing import Literal

from specpair.options import check_range
from specpair.sequences.sequence_limits import LEASE_SECONDS


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One model on one device. Names follow vLLM's where it has one.

    Raises InvalidFieldError for a number outside its limits.
    """

    model: str
    """A local folder or a Hugging Face id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: the checkpoint's type where the device computes it fast, else float32."""
    device: str = "auto"
    """`auto`: the first GPU, else the CPU; otherwise a torch device such as `cuda:1`."""
    max_model_len: int | None = None
    """Longest sequence, prompt and output together; the model's own limit if None."""
    max_num_seqs: int = 64
    """Most sequences open at once."""
    max_num_seqs_per_client: int | None = None
    """Most of them that one client may have; None for all."""
    sequence_lease: float = LEASE_SECONDS
    """Seconds after which a sequence that nobody touched is closed."""
    max_num_batched_tokens: int | None = None
    """Token budget of one forward pass; prefill beyond it waits for the next. If None what suits the device."""
    pass_timeout: float | None = None
    """Seconds after which a forward pass counts as hanging, and health says so; after twice as long the process ends.
    If None what suits the device."""
    max_num_speculative_tokens: int = 16
    """Most tokens in one proposal."""
    cache: Literal["auto", "paged", "contiguous"] = "auto"
    """`auto`: paged on a GPU, contiguous on a CPU."""
    block_size: int = 16
    """Tokens in a cache block."""
    num_blocks: int | None = None
    """Blocks in the cache; as many as the memory bears if None."""
    gpu_memory_utilization: float = 0.9
    """Share of a GPU's memory that this process may use, for weights, cache and passes together; nothing on a CPU."""
    runner: Literal["auto", "fused", "plain"] = "auto"
    """`auto`: fused and packed where the model is known, else by transformers, which `plain` always means."""
    threads: int | None = None
    """Threads that share a product on a CPU; if None one for a small model and all cores for others."""
    deterministic: bool = False
    """Logits depend on the tokens before them alone, to the last bit: fixed row shapes, at the price of speed."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_model_len", 2, 2**24),
            ("max_num_seqs", 1, 65536),
            ("max_num_seqs_per_client", 1, 65536),
            ("sequence_lease", 0.1, 86400.0),
            ("max_num_batched_tokens", 1, 2**20),
            ("pass_timeout", 0.1, 86400.0),
            ("max_num_speculative_tokens", 1, 64),
            ("block_size", 1, 1024),
            ("num_blocks", 1, 2**31),
            ("gpu_memory_utilization", 0.01, 1.0),
            ("threads", 1, 1024),
        ):
            value = getattr(self, name)
            if value is not None:
                check_range(name, value, low, high)
