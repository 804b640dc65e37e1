"""The options that several commands share: names as vLLM's where it has one, each also settable by environment."""

from typing import Annotated, Literal

import typer

from specpair.server.config import LogFormat, LogLevel

Dtype = Literal["auto", "float32", "bfloat16"]
Cache = Literal["auto", "paged", "contiguous"]

DEFAULT_ADDRESS = "127.0.0.1:50050"
COORDINATOR_PORT = 50050
DRAFT_PORT = 50051
TARGET_PORT = 50052
HTTP_PORT = 8000
DRAFT_METRICS_PORT = 9051
TARGET_METRICS_PORT = 9052

LISTENING = "Listening"
MODEL = "Model"
SPECULATION = "Speculation"
LOGGING = "Logging"
SAMPLING = "Sampling"

AUTO = "auto"

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="SPECPAIR_MODEL",
        help="A local folder, a Hugging Face id, or `bundled`.",
        rich_help_panel=MODEL,
    ),
]
DtypeOption = Annotated[
    Dtype,
    typer.Option(
        "--dtype",
        envvar="SPECPAIR_DTYPE",
        help="Type of the weights; auto takes the checkpoint's where the device is fast at it.",
        rich_help_panel=MODEL,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        envvar="SPECPAIR_DEVICE",
        help="auto, cpu, cuda or cuda:N.",
        rich_help_panel=MODEL,
    ),
]
MaxModelLenOption = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        envvar="SPECPAIR_MAX_MODEL_LEN",
        min=2,
        help="Longest sequence in tokens, prompt and output together; the model's own limit by default.",
        rich_help_panel=MODEL,
    ),
]
MaxNumSeqsOption = Annotated[
    int,
    typer.Option(
        "--max-num-seqs",
        envvar="SPECPAIR_MAX_NUM_SEQS",
        min=1,
        help="Most sequences open at once.",
        rich_help_panel=MODEL,
    ),
]
MaxNumSeqsPerClientOption = Annotated[
    int | None,
    typer.Option(
        "--max-num-seqs-per-client",
        envvar="SPECPAIR_MAX_NUM_SEQS_PER_CLIENT",
        min=1,
        help="Most sequences that one client may have open, such as one of several coordinators; without a limit by "
        "default. Clients that neither a token nor a certificate names count as one.",
        rich_help_panel=MODEL,
    ),
]
SequenceLeaseOption = Annotated[
    float,
    typer.Option(
        "--sequence-lease",
        envvar="SPECPAIR_SEQUENCE_LEASE",
        help="Seconds after which a sequence that nobody touched is closed; it is opened again when it is needed.",
        rich_help_panel=MODEL,
    ),
]
MaxNumBatchedTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-num-batched-tokens",
        envvar="SPECPAIR_MAX_NUM_BATCHED_TOKENS",
        min=1,
        help="Token budget of one forward pass: with more of them prompts are read sooner, and running outputs wait "
        "longer meanwhile. By default 128 on a CPU, 512 on a GPU.",
        rich_help_panel=MODEL,
    ),
]
PassTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--pass-timeout",
        envvar="SPECPAIR_PASS_TIMEOUT",
        help="Seconds after which a forward pass counts as hanging: health says NOT_SERVING until it comes back, and "
        "after twice as long the process ends. By default 120 on a CPU, 30 on a GPU.",
        rich_help_panel=MODEL,
    ),
]
CacheOption = Annotated[
    Cache,
    typer.Option(
        "--cache",
        envvar="SPECPAIR_CACHE",
        help="Cache back-end; auto is paged on a GPU and contiguous on a CPU.",
        rich_help_panel=MODEL,
    ),
]
BlockSizeOption = Annotated[
    int,
    typer.Option(
        "--block-size",
        envvar="SPECPAIR_BLOCK_SIZE",
        min=1,
        help="Tokens in a cache block.",
        rich_help_panel=MODEL,
    ),
]
NumBlocksOption = Annotated[
    int | None,
    typer.Option(
        "--num-blocks",
        envvar="SPECPAIR_NUM_BLOCKS",
        min=1,
        help="Blocks in the cache; by default as many as the memory bears.",
        rich_help_panel=MODEL,
    ),
]
GpuMemoryUtilizationOption = Annotated[
    float,
    typer.Option(
        "--gpu-memory-utilization",
        envvar="SPECPAIR_GPU_MEMORY_UTILIZATION",
        min=0.01,
        max=1.0,
        help="Share of a GPU's memory that a process may use, for weights, cache and passes together; `specpair up` "
        "divides it where draft and target have the same GPU. Nothing on a CPU.",
        rich_help_panel=MODEL,
    ),
]
RunnerOption = Annotated[
    Literal["auto", "fused", "plain"],
    typer.Option(
        "--runner",
        envvar="SPECPAIR_RUNNER",
        help="How forward passes run: fused has few large operators and packed weights (Llama, Mistral, Qwen2 and "
        "Qwen3 on a CPU, in float32 or a bfloat16 that it has units for), plain is transformers' own code, auto is "
        "fused where that is known.",
        rich_help_panel=MODEL,
    ),
]


def thread_count(text: str) -> int:
    """A number, or the first of a list as OMP_NUM_THREADS may have for nested regions."""
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise typer.BadParameter(f"{text} is no number of threads")
    return int(first)


ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        envvar=["SPECPAIR_THREADS", "OMP_NUM_THREADS"],
        parser=thread_count,
        metavar="N",
        help="Threads that share a product on a CPU; by default one for a small model and all cores for others.",
        rich_help_panel=MODEL,
    ),
]
DeterministicOption = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        envvar="SPECPAIR_DETERMINISTIC",
        help="Logits that are the same bits in every batch and for every number of proposed tokens, so that greedy and "
        "coupled outputs repeat exactly. Costs speed: each sequence is computed by itself, 16 rows at a time.",
        rich_help_panel=MODEL,
    ),
]


def number_or_auto(text: str) -> int | None:
    """A number; None for `auto`. Raises BadParameter."""
    if text == AUTO:
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither {AUTO} nor a number") from None


NumSpeculativeTokensOption = Annotated[
    int | None,
    typer.Option(
        "--num-speculative-tokens",
        envvar="SPECPAIR_NUM_SPECULATIVE_TOKENS",
        parser=number_or_auto,
        metavar="auto|N",
        show_default=AUTO,
        help="Tokens proposed per round unless a request says otherwise. auto decides anew for each round, by what is "
        "accepted and what it costs at present; 0 switches speculation off.",
        rich_help_panel=SPECULATION,
    ),
]
MaxNumSpeculativeTokensOption = Annotated[
    int,
    typer.Option(
        "--max-num-speculative-tokens",
        envvar="SPECPAIR_MAX_NUM_SPECULATIVE_TOKENS",
        min=0,
        help="Most tokens that may be proposed per round.",
        rich_help_panel=SPECULATION,
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        envvar="SPECPAIR_HOST",
        help="Address to listen on; 0.0.0.0 for every interface.",
        rich_help_panel=LISTENING,
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port",
        envvar="SPECPAIR_PORT",
        help="Port to listen on; 0 takes a free one.",
        rich_help_panel=LISTENING,
    ),
]
HttpAllowedHostsOption = Annotated[
    str,
    typer.Option(
        "--http-allowed-hosts",
        envvar="SPECPAIR_HTTP_ALLOWED_HOSTS",
        metavar="NAME,...",
        help="Names by which HTTP clients may ask for this server, beside localhost, addresses and --host; a proxy or "
        "another container asks by a name. * takes any name, which lets pages of other sites ask in your browser.",
        rich_help_panel=LISTENING,
    ),
]


def listed(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word for entry in text.split(",") if (word := entry.strip()))


MetricsPortOption = Annotated[
    int,
    typer.Option(
        "--metrics-port",
        envvar="SPECPAIR_METRICS_PORT",
        min=0,
        max=65535,
        help="Port of /metrics for Prometheus; 0 switches it off.",
        rich_help_panel=LISTENING,
    ),
]
GraceSecondsOption = Annotated[
    float,
    typer.Option(
        "--grace-seconds",
        envvar="SPECPAIR_GRACE_SECONDS",
        min=0,
        max=3600,
        help="Seconds that running requests have to end after a signal to stop, while new ones are refused. A second "
        "signal ends the process at once.",
        rich_help_panel=LISTENING,
    ),
]
MaxStreamsPerClientOption = Annotated[
    int,
    typer.Option(
        "--max-streams-per-client",
        envvar="SPECPAIR_MAX_STREAMS_PER_CLIENT",
        min=1,
        help="Most streams that one client may have open; a coordinator needs two or three. Clients that neither a "
        "token nor a certificate names count as one.",
        rich_help_panel=LISTENING,
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="SPECPAIR_LOG_FORMAT",
        help="console for people, json for machines.",
        rich_help_panel=LOGGING,
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        envvar="SPECPAIR_LOG_LEVEL",
        help="Least severe messages to log.",
        rich_help_panel=LOGGING,
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="SPECPAIR_ADDRESS",
        help="The coordinator, as host:port.",
    ),
]
NoColorOption = Annotated[
    bool,
    typer.Option("--no-color", help="Plain text, as with NO_COLOR set or when the output is no terminal."),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", help="Most tokens to generate; by default as many as fit.", rich_help_panel=SAMPLING),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", help="Divides the logits; 0 is greedy. Default 1.", rich_help_panel=SAMPLING),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Repeats an earlier output, with --rule coupled or a fixed --num-speculative-tokens; drawn by default.",
        rich_help_panel=SAMPLING,
    ),
]
