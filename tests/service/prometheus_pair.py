"""The bundled pair as three processes, and a real Prometheus that scrapes them with the rules of deploy/."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from command.pair.local_pair import free_port

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
PATIENCE_SECONDS = 60.0
COMMAND = [sys.executable, "-m", "command", "serve"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class PrometheusPair:
    """Where to reach what runs."""

    coordinator: str
    """Base of its HTTP API."""
    prometheus: str

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series that an expression gives at the moment. Raises AssertionError for one that is wrong."""
        answer = httpx.get(f"{self.prometheus}/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        return answer["data"]["result"]

    def query_range(self, expr: str, seconds: float, step: float = 1.0) -> list[dict[str, Any]]:
        """The same over the last seconds."""
        end = time.time()
        params = {"query": expr, "start": end - seconds, "end": end, "step": step}
        answer = httpx.get(f"{self.prometheus}/api/v1/query_range", params=params).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        return answer["data"]["result"]


@contextmanager
def running_prometheus_pair(folder: Path) -> Iterator[PrometheusPair]:
    """All four processes; `folder` takes Prometheus's data."""
    draft, target, coordinator, http, draft_metrics, target_metrics, prometheus = (free_port() for _ in range(7))
    jobs = {"coordinator": http, "draft": draft_metrics, "target": target_metrics}
    running = PrometheusPair(coordinator=f"http://127.0.0.1:{http}", prometheus=f"http://127.0.0.1:{prometheus}")
    peers = ["--target", f"127.0.0.1:{target}", "--draft", f"one=127.0.0.1:{draft},ngram"]
    with ExitStack() as stack:
        for command in (
            [*COMMAND, "draft", "--port", str(draft), "--metrics-port", str(draft_metrics)],
            [*COMMAND, "target", "--port", str(target), "--metrics-port", str(target_metrics)],
            [*COMMAND, "coordinator", "--port", str(coordinator), "--http-port", str(http), *peers],
            _prometheus_command(folder, jobs, prometheus),
        ):
            stack.enter_context(_process(command))
        wait_for(lambda: _is_ok(f"{running.coordinator}/health"))
        wait_for(lambda: _is_ok(f"{running.prometheus}/-/ready"))
        wait_for(lambda: len(running.query("up == 1")) == len(jobs))
        yield running


def wait_for(condition: Callable[[], Any]) -> None:
    """Returns once the condition holds; raises TimeoutError if it does not in time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.2)


def _prometheus_command(folder: Path, jobs: dict[str, int], port: int) -> list[str]:
    """The configuration of deploy/, with the addresses of this machine and a scrape each second."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "rules.yml")]
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{jobs[job['job_name']]}"]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]


@contextmanager
def _process(command: list[str]) -> Iterator[None]:
    """A process that ends with the block."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _is_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
