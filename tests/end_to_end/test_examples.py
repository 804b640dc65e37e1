"""The clients under examples/ as a stranger runs them: with the .proto files, without this package."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.services import RunningPair, engine_config, running_pair

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "models" / "bundled"
NODE = ROOT / "examples" / "node"
PYTHON = ROOT / "examples" / "python" / "stream.py"
NOWHERE = "127.0.0.1:1"
NUMBERS = r"\nacceptance rate \d+\.\d% \(\d+ of \d+\)\n\d+\.\d\d tokens per round\n"

# -S leaves out the .pth files of the environment, one of which leads to this package.
WITHOUT_SPECPAIR = [sys.executable, "-S"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(grpc.__file__).parents[1])}


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    async with running_pair(engine_config(BUNDLED / "target"), engine_config(BUNDLED / "draft")) as pair:
        yield pair


async def run(*command: object, folder: Path = ROOT) -> tuple[int | None, str, str]:
    """Exit status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=PIPE, stderr=PIPE, cwd=folder, env=ENVIRONMENT
    )
    async with asyncio.timeout(100):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_python_client(pair: RunningPair, tmp_path: Path) -> None:
    status, _, err = await run(*WITHOUT_SPECPAIR, "-c", "import specpair", folder=tmp_path)
    assert status == 1 and "No module named 'specpair'" in err
    status, out, err = await run(*WITHOUT_SPECPAIR, PYTHON, "class Stack:", pair.address, folder=tmp_path)
    assert status == 0 and out.strip(), err
    assert re.fullmatch(NUMBERS, err)
    status, out, err = await run(*WITHOUT_SPECPAIR, PYTHON, "x", NOWHERE, folder=tmp_path)
    assert (status, out) == (1, "") and err.startswith("UNAVAILABLE: ") and err.count("\n") == 1


def test_the_python_client_is_short() -> None:
    assert len(PYTHON.read_text().splitlines()) <= 30


@pytest.mark.needs("node", "npm")
async def test_the_node_client(pair: RunningPair) -> None:
    if not (NODE / "node_modules").is_dir():
        options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        status, _, err = await run("npm", "install", *options, folder=NODE)
        assert status == 0, err
    status, out, err = await run("node", "stream.js", "class Stack:", pair.address, folder=NODE)
    assert status == 0 and out.strip(), err
    assert re.fullmatch(NUMBERS, err)
    status, out, err = await run("node", "stream.js", "x", NOWHERE, folder=NODE)
    assert (status, out) == (1, "") and err.startswith("UNAVAILABLE: ")
