"""A draft service without a model as a process: `python -m tests.service.fake_draft_process PORT MODE`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specpair.errors import ModelRefusedError
from specpair.server import server as rpc_server
from specpair.server.config import ServerConfig
from specpair.server.server import ServiceServer, run_service
from specpair.v1.draft_service_pb2_grpc import add_DraftServiceServicer_to_server
from tests.service.rpc_servers import FakeDraft, echo

mode = sys.argv[2]


@asynccontextmanager
async def build(server: ServiceServer) -> AsyncIterator[None]:
    if mode == "refuse":
        raise ModelRefusedError("the model has recurrent state")
    if mode == "load":
        print("loading", flush=True)
        await asyncio.to_thread(time.sleep, 60)
    add_DraftServiceServicer_to_server(FakeDraft(echo), server)
    try:
        yield
    finally:
        if mode == "block":
            time.sleep(60)  # noqa: ASYNC251 (a blocked event loop is the point)
        if mode == "hang":
            await asyncio.sleep(60)
        print("cleaned up", flush=True)


if __name__ == "__main__":
    rpc_server.WATCHDOG_MARGIN_SECONDS = 0.2
    rpc_server.STARTING_SECONDS = 0.3
    run_service(ServerConfig(port=int(sys.argv[1]), grace_seconds=0.2), build, "fake draft")
