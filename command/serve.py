"""`specpair serve`: one service as a process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from command import draft_options as drafting
from command import options as opt
from command import protection
from command.bundled import BUNDLED, resolve_model
from command.failures import CommandError, friendly
from coordinator.config import MAX_REQUEST_BYTES, CoordinatorConfig
from coordinator.http_config import HttpConfig
from draft_service.config import DraftConfig
from specpair.engine_config import EngineConfig
from specpair.options import Drafter
from specpair.server.config import ServerConfig

app = typer.Typer(no_args_is_help=True, help="Run one of the three services in this process.")


@app.command("draft")
@friendly
def serve_draft(
    drafter: drafting.DraftDrafterOption = Drafter.MODEL,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            envvar="SPECPAIR_MODEL",
            help="A local folder, a Hugging Face id, or `bundled`. Default: bundled for a drafter that needs a model, "
            "none for others.",
            rich_help_panel=opt.MODEL,
        ),
    ] = None,
    table: drafting.TableOption = None,
    dtype: opt.DtypeOption = "auto",
    device: opt.DeviceOption = "auto",
    max_model_len: opt.MaxModelLenOption = None,
    max_num_seqs: opt.MaxNumSeqsOption = 64,
    max_num_seqs_per_client: opt.MaxNumSeqsPerClientOption = None,
    sequence_lease: opt.SequenceLeaseOption = 300.0,
    max_num_batched_tokens: opt.MaxNumBatchedTokensOption = None,
    pass_timeout: opt.PassTimeoutOption = None,
    cache: opt.CacheOption = "auto",
    block_size: opt.BlockSizeOption = 16,
    num_blocks: opt.NumBlocksOption = None,
    gpu_memory_utilization: opt.GpuMemoryUtilizationOption = 0.9,
    max_num_speculative_tokens: opt.MaxNumSpeculativeTokensOption = 16,
    runner: opt.RunnerOption = "auto",
    threads: opt.ThreadsOption = None,
    deterministic: opt.DeterministicOption = False,
    host: opt.HostOption = "127.0.0.1",
    port: opt.PortOption = opt.DRAFT_PORT,
    metrics_port: opt.MetricsPortOption = opt.DRAFT_METRICS_PORT,
    http_allowed_hosts: opt.HttpAllowedHostsOption = "",
    max_streams_per_client: opt.MaxStreamsPerClientOption = 64,
    tls_cert: protection.TlsCertOption = None,
    tls_key: protection.TlsKeyOption = None,
    tls_ca: protection.TlsCaOption = None,
    tokens_file: protection.TokensFileOption = None,
    insecure: protection.InsecureOption = False,
    grace_seconds: opt.GraceSecondsOption = 5.0,
    log_format: opt.LogFormatOption = "console",
    log_level: opt.LogLevelOption = "info",
) -> None:
    """Serve the draft: it proposes tokens, by a model or without one.

    `specpair serve draft --drafter ngram` loads no model, takes any vocabulary and proposes within a tenth of a
    millisecond. A request may choose any other drafter for which everything is there.
    """
    folder = drafting.model_to_load(model, drafter)
    config = DraftConfig(
        engine=None
        if folder is None
        else EngineConfig(
            model=folder,
            dtype=dtype,
            device=device,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_seqs_per_client=max_num_seqs_per_client,
            sequence_lease=sequence_lease,
            max_num_batched_tokens=max_num_batched_tokens,
            pass_timeout=pass_timeout,
            cache=cache,
            block_size=block_size,
            num_blocks=num_blocks,
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_speculative_tokens=max_num_speculative_tokens,
            runner=runner,
            threads=threads,
            deterministic=deterministic,
        ),
        drafter=drafter,
        table=drafting.table_to_load(table, folder, drafter),
        max_model_len=max_model_len or DraftConfig.max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_seqs_per_client=max_num_seqs_per_client,
        sequence_lease=sequence_lease,
        max_num_speculative_tokens=max_num_speculative_tokens,
    )
    server = ServerConfig(
        host=host,
        port=port,
        metrics_port=metrics_port or None,
        allowed_hosts=opt.listed(http_allowed_hosts),
        max_streams_per_client=max_streams_per_client,
        grace_seconds=grace_seconds,
        security=protection.server_security(tls_cert, tls_key, tls_ca, tokens_file, insecure),
        log_format=log_format,
        log_level=log_level,
    )
    with needing_torch():
        from draft_service.serve import serve
    serve(config, server)


@app.command("target")
@friendly
def serve_target(
    model: opt.ModelOption = BUNDLED,
    dtype: opt.DtypeOption = "auto",
    device: opt.DeviceOption = "auto",
    max_model_len: opt.MaxModelLenOption = None,
    max_num_seqs: opt.MaxNumSeqsOption = 64,
    max_num_seqs_per_client: opt.MaxNumSeqsPerClientOption = None,
    sequence_lease: opt.SequenceLeaseOption = 300.0,
    max_num_batched_tokens: opt.MaxNumBatchedTokensOption = None,
    pass_timeout: opt.PassTimeoutOption = None,
    cache: opt.CacheOption = "auto",
    block_size: opt.BlockSizeOption = 16,
    num_blocks: opt.NumBlocksOption = None,
    gpu_memory_utilization: opt.GpuMemoryUtilizationOption = 0.9,
    max_num_speculative_tokens: opt.MaxNumSpeculativeTokensOption = 16,
    runner: opt.RunnerOption = "auto",
    threads: opt.ThreadsOption = None,
    deterministic: opt.DeterministicOption = False,
    host: opt.HostOption = "127.0.0.1",
    port: opt.PortOption = opt.TARGET_PORT,
    metrics_port: opt.MetricsPortOption = opt.TARGET_METRICS_PORT,
    http_allowed_hosts: opt.HttpAllowedHostsOption = "",
    max_streams_per_client: opt.MaxStreamsPerClientOption = 64,
    tls_cert: protection.TlsCertOption = None,
    tls_key: protection.TlsKeyOption = None,
    tls_ca: protection.TlsCaOption = None,
    tokens_file: protection.TokensFileOption = None,
    insecure: protection.InsecureOption = False,
    grace_seconds: opt.GraceSecondsOption = 5.0,
    log_format: opt.LogFormatOption = "console",
    log_level: opt.LogLevelOption = "info",
) -> None:
    """Serve the target model: it verifies, and its text is what comes out."""
    config = EngineConfig(
        model=resolve_model(model, "target"),
        dtype=dtype,
        device=device,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_seqs_per_client=max_num_seqs_per_client,
        sequence_lease=sequence_lease,
        max_num_batched_tokens=max_num_batched_tokens,
        pass_timeout=pass_timeout,
        cache=cache,
        block_size=block_size,
        num_blocks=num_blocks,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_speculative_tokens=max_num_speculative_tokens,
        runner=runner,
        threads=threads,
        deterministic=deterministic,
    )
    server = ServerConfig(
        host=host,
        port=port,
        metrics_port=metrics_port or None,
        allowed_hosts=opt.listed(http_allowed_hosts),
        max_streams_per_client=max_streams_per_client,
        grace_seconds=grace_seconds,
        security=protection.server_security(tls_cert, tls_key, tls_ca, tokens_file, insecure),
        log_format=log_format,
        log_level=log_level,
    )
    with needing_torch():
        from target_service.serve import serve
    serve(config, server)


@contextmanager
def needing_torch() -> Iterator[None]:
    """Around the import of a service. Only there is torch loaded: the other commands start without it.

    Its threads are told to sleep, not to spin, while they wait for each other: draft, target and coordinator often
    share processors, and a thread that spins for one that is not running takes the processor that this one waits for.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"this service needs {error.name}: install specpair[models]") from None


@app.command("coordinator")
@friendly
def serve_coordinator(
    target: Annotated[
        str,
        typer.Option(
            "--target",
            envvar="SPECPAIR_TARGET",
            help="The target service, as host:port; several with commas between them, or dns:name:port for every host "
            "that the name stands for.",
        ),
    ] = f"127.0.0.1:{opt.TARGET_PORT}",
    draft: Annotated[
        str,
        typer.Option(
            "--draft",
            envvar="SPECPAIR_DRAFT",
            help="The draft service, as --target; `none` for a target alone.",
        ),
    ] = f"127.0.0.1:{opt.DRAFT_PORT}",
    host: opt.HostOption = "127.0.0.1",
    port: opt.PortOption = opt.COORDINATOR_PORT,
    http_port: Annotated[
        int,
        typer.Option(
            "--http-port",
            envvar="SPECPAIR_HTTP_PORT",
            help="Port of the OpenAI-compatible API, the page and /metrics; 0 switches them off.",
            rich_help_panel=opt.LISTENING,
        ),
    ] = opt.HTTP_PORT,
    http_allowed_hosts: opt.HttpAllowedHostsOption = "",
    num_speculative_tokens: opt.NumSpeculativeTokensOption = None,
    max_num_speculative_tokens: opt.MaxNumSpeculativeTokensOption = 16,
    max_requests: Annotated[
        int,
        typer.Option("--max-requests", envvar="SPECPAIR_MAX_REQUESTS", help="Outputs that may be generated at once."),
    ] = 64,
    max_requests_per_client: Annotated[
        int | None,
        typer.Option(
            "--max-requests-per-client",
            envvar="SPECPAIR_MAX_REQUESTS_PER_CLIENT",
            min=1,
            help="Outputs that one client may have at once, waiting ones included; without a limit by default. Clients "
            "that no token names count as one.",
        ),
    ] = None,
    max_queued_requests: Annotated[
        int,
        typer.Option(
            "--max-queued-requests",
            envvar="SPECPAIR_MAX_QUEUED_REQUESTS",
            min=0,
            help="Requests that may wait when all places are taken; 0 refuses them at once.",
        ),
    ] = 64,
    max_queue_wait: Annotated[
        float,
        typer.Option(
            "--max-queue-wait", envvar="SPECPAIR_MAX_QUEUE_WAIT", help="Seconds that a request may wait for its places."
        ),
    ] = 30.0,
    draft_timeout: Annotated[
        float,
        typer.Option(
            "--draft-timeout", envvar="SPECPAIR_DRAFT_TIMEOUT", help="Seconds that a round waits for its proposal."
        ),
    ] = 5.0,
    target_timeout: Annotated[
        float,
        typer.Option(
            "--target-timeout",
            envvar="SPECPAIR_TARGET_TIMEOUT",
            help="Seconds that any answer of a target may take, and a request without a deadline waits for a lost one.",
        ),
    ] = 60.0,
    tls_cert: protection.TlsCertOption = None,
    tls_key: protection.TlsKeyOption = None,
    tls_ca: protection.TlsCaOption = None,
    tokens_file: protection.TokensFileOption = None,
    insecure: protection.InsecureOption = False,
    peer_tls_ca: protection.PeerTlsCaOption = None,
    peer_tls_cert: protection.PeerTlsCertOption = None,
    peer_tls_key: protection.PeerTlsKeyOption = None,
    peer_tls_name: protection.PeerTlsNameOption = None,
    peer_token_file: protection.PeerTokenFileOption = None,
    grace_seconds: opt.GraceSecondsOption = 30.0,
    log_format: opt.LogFormatOption = "console",
    log_level: opt.LogLevelOption = "info",
) -> None:
    """Serve people: run the loop of draft and target for each request."""
    from coordinator.serve import serve

    security = protection.server_security(tls_cert, tls_key, tls_ca, tokens_file, insecure)
    serve(
        CoordinatorConfig(
            server=ServerConfig(
                host=host,
                port=port,
                grace_seconds=grace_seconds,
                max_message_bytes=MAX_REQUEST_BYTES,
                security=security,
                log_format=log_format,
                log_level=log_level,
            ),
            http=HttpConfig(host=host, port=http_port, allowed_hosts=opt.listed(http_allowed_hosts), security=security)
            if http_port
            else None,
            peer_security=protection.channel_security(
                peer_tls_ca, peer_tls_cert, peer_tls_key, peer_tls_name, peer_token_file, protection.PEER_TOKEN
            ),
            target_addresses=addresses(target),
            draft_addresses=() if draft == "none" else addresses(draft),
            num_speculative_tokens=num_speculative_tokens,
            max_num_speculative_tokens=max_num_speculative_tokens,
            max_requests=max_requests,
            max_requests_per_client=max_requests_per_client,
            max_queued_requests=max_queued_requests,
            max_queue_wait=max_queue_wait,
            draft_timeout=draft_timeout,
            target_timeout=target_timeout,
        )
    )


def addresses(text: str) -> tuple[str, ...]:
    """Those of a list with commas."""
    return tuple(address.strip() for address in text.split(","))
