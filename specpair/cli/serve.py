"""`specpair serve`: one service as a process."""

from collections.abc import Callable
from typing import Annotated

import typer

from coordinator.config import CoordinatorConfig
from specpair.cli import options as opt
from specpair.cli.bundled import BUNDLED, Role, resolve_model
from specpair.cli.failures import CommandError, friendly
from specpair.engine.config import EngineConfig
from specpair.rpc.config import ServerConfig

app = typer.Typer(no_args_is_help=True, help="Run one of the three services in this process.")


def _add_model_command(role: Role, default_port: int, description: str) -> None:
    """Draft and target are served alike."""

    @app.command(role, help=description)
    @friendly
    def serve_model(
        model: opt.ModelOption = BUNDLED,
        dtype: opt.DtypeOption = "auto",
        device: opt.DeviceOption = "auto",
        max_model_len: opt.MaxModelLenOption = None,
        max_num_seqs: opt.MaxNumSeqsOption = 64,
        max_num_batched_tokens: opt.MaxNumBatchedTokensOption = 512,
        cache: opt.CacheOption = "auto",
        block_size: opt.BlockSizeOption = 16,
        num_blocks: opt.NumBlocksOption = None,
        max_num_speculative_tokens: opt.MaxNumSpeculativeTokensOption = 16,
        deterministic: opt.DeterministicOption = False,
        host: opt.HostOption = "127.0.0.1",
        port: opt.PortOption = default_port,
        log_format: opt.LogFormatOption = "console",
        log_level: opt.LogLevelOption = "info",
    ) -> None:
        engine = EngineConfig(
            model=resolve_model(model, role),
            dtype=dtype,
            device=device,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            cache=cache,
            block_size=block_size,
            num_blocks=num_blocks,
            max_num_speculative_tokens=max_num_speculative_tokens,
            deterministic=deterministic,
        )
        server = ServerConfig(host=host, port=port, log_format=log_format, log_level=log_level)
        _load_service(role)(engine, server)


def _load_service(role: Role) -> Callable[[EngineConfig, ServerConfig], None]:
    """The service's entry. Only here is torch loaded: the other commands start without it."""
    try:
        if role == "draft":
            from draft_service.serve import serve
        else:
            from target_service.serve import serve
    except ModuleNotFoundError as error:
        raise CommandError(f"serving a model needs {error.name}: install specpair[models]") from None
    return serve


_add_model_command("draft", opt.DRAFT_PORT, "Serve the draft model: it proposes tokens.")
_add_model_command("target", opt.TARGET_PORT, "Serve the target model: it verifies, and its text is what comes out.")


@app.command("coordinator")
@friendly
def serve_coordinator(
    target: Annotated[
        str, typer.Option("--target", envvar="SPECPAIR_TARGET", help="The target service, as host:port.")
    ] = f"127.0.0.1:{opt.TARGET_PORT}",
    draft: Annotated[
        str, typer.Option("--draft", envvar="SPECPAIR_DRAFT", help="The draft service, as host:port; none: `none`.")
    ] = f"127.0.0.1:{opt.DRAFT_PORT}",
    host: opt.HostOption = "127.0.0.1",
    port: opt.PortOption = opt.COORDINATOR_PORT,
    num_speculative_tokens: opt.NumSpeculativeTokensOption = 5,
    max_num_speculative_tokens: opt.MaxNumSpeculativeTokensOption = 16,
    max_requests: Annotated[
        int,
        typer.Option("--max-requests", envvar="SPECPAIR_MAX_REQUESTS", help="Outputs that may be generated at once."),
    ] = 64,
    draft_timeout: Annotated[
        float,
        typer.Option(
            "--draft-timeout", envvar="SPECPAIR_DRAFT_TIMEOUT", help="Seconds that a round waits for its proposal."
        ),
    ] = 5.0,
    target_timeout: Annotated[
        float,
        typer.Option(
            "--target-timeout", envvar="SPECPAIR_TARGET_TIMEOUT", help="Seconds that a request waits for a lost target."
        ),
    ] = 60.0,
    log_format: opt.LogFormatOption = "console",
    log_level: opt.LogLevelOption = "info",
) -> None:
    """Serve people: run the loop of draft and target for each request."""
    from coordinator.serve import serve

    serve(
        CoordinatorConfig(
            server=ServerConfig(host=host, port=port, log_format=log_format, log_level=log_level),
            target_address=target,
            draft_address=None if draft == "none" else draft,
            num_speculative_tokens=num_speculative_tokens,
            max_num_speculative_tokens=max_num_speculative_tokens,
            max_requests=max_requests,
            draft_timeout=draft_timeout,
            target_timeout=target_timeout,
        )
    )
