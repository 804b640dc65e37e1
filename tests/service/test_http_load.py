"""A public load generator, locust, against the HTTP front end."""

import asyncio
import json
import sys
from pathlib import Path

from tests.http_service import running_bundled_pair

LOCUSTFILE = Path(__file__).parents[1] / "locustfile.py"


async def test_locust(tmp_path: Path) -> None:
    """No request fails, and when the users are gone nothing is left of them."""
    async with running_bundled_pair() as pair:
        report = tmp_path / "report"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"),
            *("--host", f"http://{pair.http_address}", "--users", "4", "--spawn-rate", "4", "--run-time", "3s"),
            *("--json-file", str(report)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        entries = json.loads(report.with_suffix(".json").read_text())
        assert {entry["name"] for entry in entries} == {"/v1/completions", "/v1/chat/completions"}
        assert all(entry["num_requests"] and not entry["num_failures"] for entry in entries)
        await pair.check_clean()
