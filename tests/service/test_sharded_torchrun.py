"""A target whose ranks two agents of torchrun start, as on two machines: a rank is killed, and they start the group
again by themselves. Both are on this machine, by its loopback address."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path

import pytest

from tests.faults.cluster import free_port
from tests.service.test_sharded_processes import (
    COMMON,
    PATIENCE,
    ROOT,
    children_of,
    is_running,
    until_gone,
    until_serving,
)
from tests.tiny_models import make_model

pytestmark = pytest.mark.timeout(600)


async def start_agent(meeting: int, port: int, model: Path, log: Path) -> Process:
    """What docs/usage.md says to run on every machine."""
    agent = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "2"]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{meeting}", "--rdzv-id", "target"]
    served = ["serve", "target", "--model", str(model), "--tensor-parallel-size", "2", "--port", str(port), *COMMON]
    with log.open("wb") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "torch.distributed.run", *agent, *rendezvous, "--local-addr", "127.0.0.1"),
            *("-m", "command", *served),
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=DEVNULL,
            stdout=file,
            stderr=file,
        )


async def test_the_agents_start_the_group_again(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "qwen2", seed=1)
    meeting, port = free_port(), free_port()
    logs = [tmp_path / f"agent-{node}.log" for node in range(2)]
    agents = [await start_agent(meeting, port, model, log) for log in logs]
    try:
        await until_serving(port, agents)
        ranks = [rank for agent in agents for rank in children_of(agent.pid)]
        assert len(ranks) == 2
        os.kill(ranks[1], signal.SIGKILL)
        for rank in ranks:
            await until_gone(rank)
        await until_serving(port, agents)
        again = [rank for agent in agents for rank in children_of(agent.pid)]
        assert len(again) == 2 and not {*again} & {*ranks}
        for agent in agents:
            agent.terminate()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(agent.wait() for agent in agents))
        assert not any(map(is_running, again))
    except BaseException:
        print(*(log.read_text()[-4000:] for log in logs), sep="\n=====\n")
        raise
    finally:
        for agent in agents:
            if agent.returncode is None:
                agent.kill()
                await agent.wait()
