"""The health check of containers against what it asks."""

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specpair.security.settings import ServerSecurity
from specpair.server.config import ServerConfig
from specpair.server.metrics_endpoint import metrics_endpoint
from specpair.server.metrics_registry import service_registry
from tests.service.certificates import Authority

PROBE = Path(__file__).parents[2] / "deploy" / "probe.py"
HOST = "127.0.0.1"


async def probe(port: int, **environment: str) -> tuple[int | None, str]:
    """Its status, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-E", str(PROBE), str(port)), stderr=asyncio.subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    return process.returncode, errors.decode().strip()


@pytest.mark.parametrize(("is_ready", "expected"), [(lambda: True, (0, "")), (lambda: False, (1, "not ready"))])
async def test_it_repeats_what_the_service_says(is_ready: Callable[[], bool], expected: tuple[int, str]) -> None:
    async with metrics_endpoint(service_registry("draft"), ServerConfig(port=0, metrics_port=0), is_ready) as port:
        assert port is not None
        assert await probe(port) == expected


@pytest.mark.parametrize("wants_certificates", [False, True])
async def test_by_tls_where_the_service_has_it(wants_certificates: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.tls("service", ca=authority.path if wants_certificates else None)
    assert tls.cert is not None and tls.key is not None
    tokens = tmp_path / "tokens"
    tokens.write_text("somebody:a-token-that-is-not-shown\n")
    security = ServerSecurity(tls=tls, tokens_file=str(tokens))
    config = ServerConfig(port=0, metrics_port=0, security=security)
    async with metrics_endpoint(service_registry("draft"), config) as port:
        assert port is not None
        assert await probe(port, SPECPAIR_TLS_CERT=tls.cert, SPECPAIR_TLS_KEY=tls.key) == (0, "")
        assert (await probe(port, SPECPAIR_TLS_CERT=""))[0] == 1


async def test_nobody_is_not_ready() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        status, said = await probe(unused.getsockname()[1])
    assert status == 1 and said.startswith("no answer") and "\n" not in said


async def test_somebody_who_says_nothing_is_not_ready() -> None:
    with socket.create_server((HOST, 0)) as silent:
        status, said = await probe(silent.getsockname()[1])
    assert status == 1 and "timed out" in said
