"""`specpair trace` against real services: the file holds every round of the request."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.services import engine_config, running_pair
from tests.unit.command.trace.test_trace import check_trace

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"


async def test_a_trace_of_a_real_request(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    flags = ["--max-tokens", "24", "--ignore-eos", "--num-speculative-tokens", "3", "--n", "2", "-o", str(file)]
    async with running_pair(engine_config(BUNDLED / "target"), engine_config(BUNDLED / "draft")) as pair:
        command = [sys.executable, "-m", "command", "trace", "def add(a, b):", "--address", pair.address, *flags]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
    assert (process.returncode, out) == (0, b""), err
    assert err.decode().count("acceptance rate") == 2 and f"wrote {file}" in err.decode()
    spans = check_trace(json.loads(file.read_text()))
    for output in ("output 1", "output 2"):
        request, _, *rounds = spans["coordinator", f"rounds ({output})"]
        assert sum(event["args"]["committed"] for event in rounds) == 24
        for name in ("proposed", "accepted"):
            assert sum(event["args"][name] for event in rounds) == request["args"][name] > 0
        assert len(spans["target", f"compute ({output})"]) == len(rounds)
        making = [track for track in spans if track[0] == "draft" and track[1].startswith(("compute", "ahead"))]
        proposals = [span for track in making if track[1].endswith(f"({output})") for span in spans[track]]
        assert len(proposals) == sum(event["args"]["proposed"] > 0 for event in rounds)
