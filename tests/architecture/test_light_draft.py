"""A draft without a model loads no engine."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("transformers", "specpair.engine", "specpair.models", "specpair.caches")
START = """
import asyncio, sys
import command.serve, draft_service.serve
from draft_service.config import DraftConfig
from specpair.options import Drafter
from specpair.server.config import ServerConfig
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer

async def start():
    server = ServiceServer(ServerConfig(port=0))
    async with draft_service.serve.open_draft(server, DraftConfig(drafter=Drafter.NGRAM), service_registry("draft")):
        pass

asyncio.run(start())
"""


def test_a_draft_without_a_model_loads_no_engine() -> None:
    script = f"{START}print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
