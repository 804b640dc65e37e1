"""`specpair serve`: one service as a process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from command.draft_files import check_named, check_there, model_to_load, table_to_load
from command.failures import CommandError, friendly
from command.flags.access import channel_security
from command.flags.option import configured, options, parameters
from command.flags.signature import takes
from coordinator.config import MAX_REQUEST_BYTES, CoordinatorConfig
from coordinator.http_config import HttpConfig
from draft_service.config import DraftConfig
from specpair.engine_config import MODEL_KINDS, EngineConfig
from specpair.named_models import BUNDLED, resolve_model
from specpair.security.settings import ChannelSecurity, ServerSecurity
from specpair.server.config import ServerConfig

COORDINATOR_PORT = 50050
DRAFT_PORT = 50051
TARGET_PORT = 50052
HTTP_PORT = 8000
DRAFT_METRICS_PORT = 9051
TARGET_METRICS_PORT = 9052
STREAMS_PER_CLIENT = 64
SPIN_COUNT = "10000"
"""Turns for which an OpenMP thread spins before it sleeps, some tens of microseconds; with 2,000 most waits are longer,
and a pass takes twice as long (docs/decisions/engine.md)."""
PEER = "peer_"
"""Prefix of the options for the coordinator's connections to draft and target."""
RUNNING = options(ServerConfig, only=("grace_seconds", "log_format", "log_level"))
OF_A_MODEL = {
    **options(ServerConfig, only=("host", "port", "metrics_port", "allowed_hosts", "max_streams_per_client")),
    **options(ServerSecurity),
    **RUNNING,
}
OF_THE_COORDINATOR = (
    options(CoordinatorConfig, only=("target_addresses", "draft_addresses"))
    | options(ServerConfig, only=("host", "port"))
    | options(HttpConfig)
    | options(CoordinatorConfig)
    | options(ServerSecurity)
)
OF_TARGETS = ("generation_config", "head", "head_quantization", "head_tree_tokens", "tensor_parallel_size")
"""Fields of an engine that only a target has."""
DRAFT_MODEL_HELP = f"The model: {MODEL_KINDS}. Default: bundled if the drafter needs a model, else none."

app = typer.Typer(no_args_is_help=True, help="Run one of the three services in this process.")


@app.command("draft")
@friendly
@takes(
    parameters(
        options(DraftConfig, only=("drafter",))
        | options(EngineConfig, only=("model",))
        | options(
            DraftConfig, only=("table", "vocabulary", "max_ahead_rows", "own_draft", "own_num_speculative_tokens")
        )
        | options(EngineConfig, without=OF_TARGETS),
        help={"model": DRAFT_MODEL_HELP},
        model=None,
    ),
    parameters(
        OF_A_MODEL,
        port=DRAFT_PORT,
        metrics_port=DRAFT_METRICS_PORT,
        max_streams_per_client=STREAMS_PER_CLIENT,
    ),
)
def serve_draft(**values: Any) -> None:
    """Serve the draft: it proposes tokens, with a model or without one.

    `specpair serve draft --drafter ngram` loads no model, works with any vocabulary and proposes within a tenth of a
    millisecond. A request may choose any other drafter whose model or table is loaded.
    """
    models = {"--model": values["model"], "--own-draft": values["own_draft"]}
    check_named(models)
    check_there(models.items())
    folder = model_to_load(values["model"], values["drafter"])
    config = configured(
        DraftConfig,
        values,
        engine=None if folder is None else configured(EngineConfig, values, model=folder),
        table=table_to_load(values["table"], folder, values["drafter"]),
        own_draft=resolve_model(values["own_draft"], "draft"),
        max_model_len=values["max_model_len"] or DraftConfig.max_model_len,
    )
    server = server_config(values)
    with needing_torch():
        from draft_service.serve import serve
    serve(config, server)


@app.command("target")
@friendly
@takes(
    parameters(options(EngineConfig), model=BUNDLED),
    parameters(
        OF_A_MODEL,
        port=TARGET_PORT,
        metrics_port=TARGET_METRICS_PORT,
        max_streams_per_client=STREAMS_PER_CLIENT,
    ),
)
def serve_target(**values: Any) -> None:
    """Serve the target: its model verifies proposals and decides the text."""
    check_named({"--model": values["model"]})
    check_there([("--model", values["model"])])
    config = configured(EngineConfig, values, model=resolve_model(values["model"], "target"))
    server = server_config(values)
    with needing_torch():
        from target_service.serve import serve
    serve(config, server)


@contextmanager
def needing_torch() -> Iterator[None]:
    """Goes around the import of a service. Only that import loads torch: other commands start without it.

    OpenMP threads that wait for each other spin, but not for long: draft, target and coordinator often share
    processors, and a spinning thread takes the processor from the thread that it waits for.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"this service needs {error.name}: install specpair[models]") from None


@app.command("coordinator")
@friendly
@takes(
    parameters(
        OF_THE_COORDINATOR,
        target=f"127.0.0.1:{TARGET_PORT}",
        draft=f"127.0.0.1:{DRAFT_PORT}",
        port=COORDINATOR_PORT,
        http_port=HTTP_PORT,
    ),
    parameters(options(ChannelSecurity, PEER), peer="draft and target"),
    parameters(RUNNING, grace_seconds=30.0),
)
def serve_coordinator(**values: Any) -> None:
    """Serve the coordinator: it takes requests and runs the rounds of draft and target."""
    from coordinator.serve import serve

    server = server_config(values, max_message_bytes=MAX_REQUEST_BYTES, allowed_hosts=())
    http = configured(HttpConfig, values, host=server.host, security=server.security) if values["http_port"] else None
    peer_security = channel_security(values, PEER)
    serve(configured(CoordinatorConfig, values, server=server, http=http, peer_security=peer_security))


def server_config(values: dict[str, Any], **others: Any) -> ServerConfig:
    """The server configuration from the values of the options. Raises InvalidFieldError."""
    return configured(ServerConfig, values, security=configured(ServerSecurity, values), **others)
