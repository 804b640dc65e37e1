"""A process that has loaded torch and from which services are forked: a start takes one second instead of ten.

Their code is that of `specpair serve` from its first line; what is saved is the import of libraries. Nothing runs in
the nursery, and no thread of gRPC or torch begins there, so a fork of it is as good as a new process.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOADED = ["command.main", "coordinator.serve", "draft_service.serve", "target_service.serve"]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_NUM_THREADS": "1",  # otherwise its threads begin when it is loaded, and threads cannot be forked
    "NO_COLOR": "1",
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",  # it frees what killed processes leave, and says so
}
"""Of all services."""


def fork_service(name: str, arguments: Sequence[str], log_path: Path) -> BaseProcess:
    """Starts `specpair serve` with these arguments; its output is appended to the file. The first start takes long."""
    context = multiprocessing.get_context("forkserver")
    with _environment():
        context.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    process = context.Process(target=_serve, args=(list(arguments), str(log_path)), name=name, daemon=True)
    process.start()
    return process


def _serve(arguments: list[str], log_path: str) -> None:
    log = os.open(log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.setsid()
    from command.main import app

    sys.argv = ["specpair", "serve", *arguments]
    app()


@contextmanager
def _environment() -> Iterator[None]:
    """The nursery takes over what is set when it begins."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
