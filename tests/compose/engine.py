"""The Docker engine and Compose of this machine, whichever they are."""

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

ROOT = Path(__file__).parents[2]
FILES = ("docker-compose.yml", "tests/compose/docker-compose.test.yml")
SECURED = "docker-compose.secured.yml"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
BUILD_SECONDS = 1800


def find_compose() -> list[str] | None:
    """Version 2 if it is there, else 1.29; None without either."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and _succeeds([*command, "version"]):
            return command
    return None


def find_engine() -> docker.DockerClient | None:
    """A client of the engine, if one answers."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        return None
    return client


class Project:
    """One project of Compose, without Grafana."""

    services = ("target", "draft", "coordinator", "prometheus")

    def __init__(self, compose: list[str], name: str, environment: dict[str, str], files: tuple[str, ...] = FILES):
        self.name = name
        self._command = [*compose, "--project-name", name, *(word for file in files for word in ("--file", file))]
        self._environment = {**os.environ, **environment}

    def run(self, *arguments: str, timeout: float = 120.0) -> str:
        """What the command prints. Raises AssertionError if it fails."""
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout

    def up(self) -> None:
        """Builds the images, and starts the services in order."""
        self.run("build", *self.services[:3], timeout=BUILD_SECONDS)
        self.run("up", "--detach", *self.services, timeout=600)

    def down(self) -> None:
        self.run("down", "--volumes", "--timeout", "15")


def images(client: docker.DockerClient) -> dict[str, str]:
    """Settings for what this machine may lack: the pinned Prometheus, and the index of torch's CPU builds."""
    settings = {"SPECPAIR_TAG": "test"}
    if "PROMETHEUS_TAG" not in os.environ and _has_image(client, "prom/prometheus:latest"):
        settings["PROMETHEUS_TAG"] = "latest"
    if "TORCH_INDEX" not in os.environ and not _is_reachable(CPU_INDEX):
        settings["TORCH_INDEX"] = ""
    return settings


def _has_image(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _is_reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
