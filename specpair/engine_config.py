"""The configuration of one engine: plain data, without torch."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from specpair.flags import MODEL, SPECULATION, Flag, Range
from specpair.options import check_fields
from specpair.sequences.sequence_limits import LEASE_SECONDS

MODEL_KINDS = "a local folder, a GGUF file, a Hugging Face id, `bundled` or `smollm2`"
"""What names a model, for help texts."""
MOST_PACE_SECONDS = 10.0
SequenceLength = Range(2, 2**24)
MaxNumSeqs = Annotated[int, Range(1, 65536), Flag("Most sequences open at once.", MODEL)]
MaxNumSeqsPerClient = Annotated[
    int | None,
    Range(1, 65536),
    Flag(
        "Most sequences that one client (such as one of several coordinators) may have open; no limit by default. "
        "All clients without a token or certificate count as one.",
        MODEL,
    ),
]
SequenceLease = Annotated[
    float,
    Range(0.1, 86400.0, "none"),
    Flag(
        "Seconds without a call after which a sequence is closed. It is opened again when it is needed.",
        MODEL,
    ),
]
MaxNumSpeculativeTokens = Annotated[int, Range(1, 64), Flag("Most tokens that may be proposed per round.", SPECULATION)]


def thread_count(text: str) -> int:
    """A number, or the first of a list: OMP_NUM_THREADS may be a list for nested regions. Raises ValueError."""
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise ValueError(f"{text} is not a number of threads")
    return int(first)


class Pace(NamedTuple):
    """The least time of a forward pass."""

    seconds: float
    row_seconds: float = 0.0
    """In addition, for each token that is fed."""

    def of_pass(self, token_count: int) -> float:
        """Seconds of a pass that feeds so many tokens, of all its sequences together."""
        return self.seconds + self.row_seconds * token_count


def pace_of(text: str) -> Pace:
    """Milliseconds of a pass, or of a pass and of each row: `20` or `20,0.5`. Raises ValueError."""
    words = text.split(",")
    try:
        numbers = [float(word) / 1000 for word in words]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not all(0 <= number <= MOST_PACE_SECONDS for number in numbers):
        raise ValueError(f"{text} is not MS or MS,MS_PER_ROW, each from 0 to {MOST_PACE_SECONDS * 1000:.0f}")
    return Pace(*numbers)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One model on one device. Fields have vLLM's names where vLLM has the same option.

    Raises InvalidFieldError for a number outside its limits.
    """

    model: Annotated[str, Flag(f"The model: {MODEL_KINDS}.", MODEL)]
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Flag("Type of the weights; auto is the checkpoint's own if the device computes it fast, else float32.", MODEL),
    ] = "auto"
    device: Annotated[str, Flag("Device of the model: auto, cpu, cuda or cuda:N.", MODEL)] = "auto"
    """`auto`: the first GPU, else the CPU."""
    max_model_len: Annotated[
        int | None,
        SequenceLength,
        Flag("Longest sequence in tokens, prompt and output together. Default: the model's own limit.", MODEL),
    ] = None
    max_num_seqs: MaxNumSeqs = 64
    max_num_seqs_per_client: MaxNumSeqsPerClient = None
    sequence_lease: SequenceLease = LEASE_SECONDS
    max_num_batched_tokens: Annotated[
        int | None,
        Range(1, 2**20),
        Flag(
            "Token budget of one forward pass. A larger budget reads prompts sooner, but running outputs wait longer. "
            "Default: 128 on a CPU, 512 on a GPU.",
            MODEL,
        ),
    ] = None
    pass_timeout: Annotated[
        float | None,
        Range(0.1, 86400.0, "none"),
        Flag(
            "Seconds after which a forward pass counts as hanging: health reports NOT_SERVING until the pass ends, "
            "and after twice as long the process exits. Default: 120 on a CPU, 30 on a GPU.",
            MODEL,
        ),
    ] = None
    cache: Annotated[
        Literal["auto", "paged", "contiguous"],
        Flag("Kind of cache; auto is paged on a GPU and contiguous on a CPU.", MODEL),
    ] = "auto"
    block_size: Annotated[int, Range(1, 1024), Flag("Tokens per cache block.", MODEL)] = 16
    num_blocks: Annotated[
        int | None,
        Range(1, 2**31),
        Flag("Blocks in the cache. Default: as many as fit into memory.", MODEL),
    ] = None
    gpu_memory_utilization: Annotated[
        float,
        Range(0.01, 1.0, "both"),
        Flag(
            "Share of a GPU's memory that a process may use for weights, cache and forward passes. If draft and "
            "target use the same GPU, `specpair up` divides the share. No effect on a CPU.",
            MODEL,
        ),
    ] = 0.9
    max_num_speculative_tokens: MaxNumSpeculativeTokens = 16
    runner: Annotated[
        Literal["auto", "native", "fused", "captured", "plain"],
        Flag(
            "How forward passes run. native: one compiled call, for Llama, Mistral, Qwen2 and Qwen3 on a CPU, in "
            "float32 or hardware bfloat16; compiled at first use, which needs a C compiler. fused: the same models "
            "without a compiler, by few large operators and packed weights. captured: the same models on a "
            "GPU, as CUDA graphs over a paged cache. plain: the code of transformers. auto: the fastest of these that "
            "is supported; fused for float32 with wide layers.",
            MODEL,
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        Flag(
            "Hold the weights in 8 or 4 bits, for Llama, Mistral, Qwen2 and Qwen3 on an x86 CPU. Faster, and another "
            "model: `specpair info` shows how far it is from its checkpoint. int4 keeps 8 bits for the output head.",
            MODEL,
        ),
    ] = "none"
    threads: Annotated[
        int | None,
        Range(1, 1024, "none"),
        Flag(
            "CPU threads that share a matrix product. Default: one for a small model, all cores for others.",
            MODEL,
            metavar="N",
            parse=thread_count,
            variables=("OMP_NUM_THREADS",),
        ),
    ] = None
    deterministic: Annotated[
        bool,
        Flag(
            "Compute logits to the same bits in every batch and for every number of proposed tokens, so that greedy "
            "and coupled outputs repeat exactly. Costs speed: each sequence is computed alone, 16 rows at a time.",
            MODEL,
        ),
    ] = False
    generation_config: Annotated[
        Literal["auto", "none"],
        Flag(
            "Sampling options of requests that do not set them. auto: temperature, top_k, top_p, min_p and "
            "repetition_penalty of the model's generation_config.json, where that has them. none: temperature 1 and no "
            "other option.",
            MODEL,
        ),
    ] = "auto"
    head: Annotated[
        str | None,
        Flag(
            "Folder of a head for the target: EAGLE-3 in the layout of vllm-project/speculators, Medusa, or PaSS; or "
            "mtp, for the prediction layers of the target's own checkpoint. With it the target proposes tokens itself, "
            "with each verdict, for requests that choose the drafter eagle, medusa, blockwise, pass or mtp.",
            SPECULATION,
            metavar="FOLDER",
        ),
    ] = None
    head_quantization: Annotated[
        Literal["auto", "none", "int8", "int4"],
        Flag(
            "Hold the weights of an EAGLE-3 head in 8 or 4 bits, where the target's passes are compiled calls "
            "(native). The output stays the target's; only acceptance can change. auto: int8, unless both the head's "
            "file and the target have 32 bits.",
            MODEL,
        ),
    ] = "auto"
    head_tree_tokens: Annotated[
        int,
        Range(0, 64),
        Flag(
            "Most tokens of a tree that an EAGLE-3 head proposes, at temperature 0 and under the coupled rule. Its "
            "levels are the tokens asked for. 0 for chains, which it always proposes under the rules token and block.",
            SPECULATION,
            metavar="N",
        ),
    ] = 0
    tensor_parallel_size: Annotated[
        int,
        Range(1, 64),
        Flag(
            "Processes, each with its share of the target's heads and weights, on a CPU or GPU each. This process "
            "leads and starts the others, unless RANK, WORLD_SIZE and MASTER_ADDR are set, as torchrun does, for a "
            "group on several machines.",
            MODEL,
        ),
    ] = 1
    pace: Annotated[
        Pace | None,
        Flag(
            "For benchmarks only: milliseconds that a forward pass takes at least, with what is done with its "
            "logits, and milliseconds more for each token that it feeds. The time that is left is slept, which "
            "imitates a slower device without using a processor. A draft runs a pass for each token that it proposes.",
            MODEL,
            metavar="MS[,MS_PER_ROW]",
            parse=pace_of,
        ),
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
