"""`specpair health` against a real server in each of its states."""

import asyncio

from typer.testing import CliRunner, Result

from command.main import app
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer


async def ask(port: int) -> Result:
    command = ["health", "--address", f"127.0.0.1:{port}", "--timeout", "5"]
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def test_status_follows_the_service() -> None:
    server = ServiceServer(ServerConfig(port=0, grace_seconds=0.0))
    port = await server.start()
    try:
        starting = await ask(port)
        await server.set_ready(True)
        ready = await ask(port)
    finally:
        await server.stop()
    gone = await ask(port)
    assert (starting.exit_code, ready.exit_code, gone.exit_code) == (1, 0, 1)
    assert "NOT_SERVING" in starting.stderr
    assert "SERVING" in ready.stdout
    assert gone.stderr.strip() == f"specpair: 127.0.0.1:{port} does not answer: UNAVAILABLE"
