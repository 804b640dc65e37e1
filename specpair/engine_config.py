"""Configuration of one engine. Plain data, without torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from specpair.flags import MODEL, SPECULATION, Flag, Range
from specpair.options import check_fields
from specpair.sequences.sequence_limits import LEASE_SECONDS

SequenceLength = Range(2, 2**24)
MaxNumSeqs = Annotated[int, Range(1, 65536), Flag("Most sequences open at once.", MODEL)]
MaxNumSeqsPerClient = Annotated[
    int | None,
    Range(1, 65536),
    Flag(
        "Most sequences that one client may have open, such as one of several coordinators; without a limit by default."
        " Clients that neither a token nor a certificate names count as one.",
        MODEL,
    ),
]
SequenceLease = Annotated[
    float,
    Range(0.1, 86400.0, "none"),
    Flag(
        "Seconds after which a sequence that nobody touched is closed; it is opened again when it is needed.",
        MODEL,
    ),
]
MaxNumSpeculativeTokens = Annotated[int, Range(1, 64), Flag("Most tokens that may be proposed per round.", SPECULATION)]


def thread_count(text: str) -> int:
    """Parses a number, or the first number of a list (OMP_NUM_THREADS may list nested regions). Raises ValueError."""
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise ValueError(f"{text} is not a number of threads")
    return int(first)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One model on one device. Fields have vLLM's names where vLLM has the same option.

    Raises InvalidFieldError for a number outside its limits.
    """

    model: Annotated[str, Flag("A local folder, a Hugging Face id, or `bundled`.", MODEL)]
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Flag("Type of the weights; auto takes the checkpoint's where the device is fast at it.", MODEL),
    ] = "auto"
    device: Annotated[str, Flag("auto, cpu, cuda or cuda:N.", MODEL)] = "auto"
    """`auto`: the first GPU, else the CPU."""
    max_model_len: Annotated[
        int | None,
        SequenceLength,
        Flag("Longest sequence in tokens, prompt and output together; the model's own limit by default.", MODEL),
    ] = None
    max_num_seqs: MaxNumSeqs = 64
    max_num_seqs_per_client: MaxNumSeqsPerClient = None
    sequence_lease: SequenceLease = LEASE_SECONDS
    max_num_batched_tokens: Annotated[
        int | None,
        Range(1, 2**20),
        Flag(
            "Token budget of one forward pass. A larger budget reads prompts sooner, but running outputs wait longer "
            "for each pass. By default 128 on a CPU, 512 on a GPU.",
            MODEL,
        ),
    ] = None
    pass_timeout: Annotated[
        float | None,
        Range(0.1, 86400.0, "none"),
        Flag(
            "Seconds after which a forward pass counts as hanging: health is NOT_SERVING until the pass ends, and "
            "after twice as long the process ends. By default 120 on a CPU, 30 on a GPU.",
            MODEL,
        ),
    ] = None
    cache: Annotated[
        Literal["auto", "paged", "contiguous"],
        Flag("Cache back-end; auto is paged on a GPU and contiguous on a CPU.", MODEL),
    ] = "auto"
    block_size: Annotated[int, Range(1, 1024), Flag("Tokens in a cache block.", MODEL)] = 16
    num_blocks: Annotated[
        int | None,
        Range(1, 2**31),
        Flag("Blocks in the cache; by default as many as fit into the memory.", MODEL),
    ] = None
    gpu_memory_utilization: Annotated[
        float,
        Range(0.01, 1.0, "both"),
        Flag(
            "Share of a GPU's memory that a process may use, for weights, cache and passes together; `specpair up` "
            "divides it where draft and target have the same GPU. No effect on a CPU.",
            MODEL,
        ),
    ] = 0.9
    max_num_speculative_tokens: MaxNumSpeculativeTokens = 16
    runner: Annotated[
        Literal["auto", "fused", "plain"],
        Flag(
            "How forward passes run: fused has few large operators and packed weights (Llama, Mistral, Qwen2 and "
            "Qwen3 on a CPU, in float32 or a bfloat16 that it has units for), plain is transformers' own code, auto is "
            "fused where the model is known.",
            MODEL,
        ),
    ] = "auto"
    threads: Annotated[
        int | None,
        Range(1, 1024, "none"),
        Flag(
            "Threads that share a product on a CPU; by default one for a small model and all cores for others.",
            MODEL,
            metavar="N",
            parse=thread_count,
            variables=("OMP_NUM_THREADS",),
        ),
    ] = None
    deterministic: Annotated[
        bool,
        Flag(
            "Logits that are the same bits in every batch and for every number of proposed tokens, so that greedy and "
            "coupled outputs repeat exactly. Costs speed: each sequence is computed by itself, 16 rows at a time.",
            MODEL,
        ),
    ] = False

    def __post_init__(self) -> None:
        check_fields(self)
