"""The same containers behind TLS and tokens: who has one is served, and Prometheus sees all."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpair.security.credentials import http_client_context
from specpair.security.settings import TlsFiles
from tests.compose.engine import FILES, ROOT, SECURED, Project, find_compose, images
from tests.compose.test_compose import ask_prometheus, containers, engine, ports, wait_for

__all__ = ["engine", "ports"]

pytestmark = [pytest.mark.compose, pytest.mark.needs("docker", "docker compose"), pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the users of the containers, which takes root to make."""
    if os.getuid() != 0:
        pytest.skip("the secrets cannot be given to the users of the containers")
    folder = tmp_path_factory.mktemp("secured") / "secrets"
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    subprocess.run(["sh", str(ROOT / "deploy" / "secrets.sh"), str(folder)], check=True, timeout=60)
    for path in (folder / "prometheus", *(folder / "prometheus").iterdir()):
        path.chmod(0o755)  # this machine's image of Prometheus may run as another user than the official one
    return folder


@pytest.fixture(scope="module")
def project(engine: Any, ports: dict[str, int], secrets: Path) -> Iterator[Project]:
    compose = find_compose()
    assert compose is not None
    settings = {**images(engine), **{name: str(port) for name, port in ports.items()}}
    settings |= {"SPECPAIR_SECRETS": str(secrets), "SPECPAIR_HTTPS_PORT": "0", "SPECPAIR_GRPCS_PORT": "0"}
    project = Project(compose, f"specpair-secured-{os.getpid()}", settings, (*FILES, SECURED))
    try:
        project.up()
        yield project
    finally:
        project.down()


def test_all_become_healthy(engine: Any, project: Project) -> None:
    def states() -> dict[str, str]:
        return {name: one.attrs["State"]["Health"]["Status"] for name, one in containers(engine, project).items()}

    wait_for(lambda: set(states().values()) == {"healthy"})
    assert states() == dict.fromkeys(project.services, "healthy")


def test_who_has_a_token_is_served(project: Project, ports: dict[str, int], secrets: Path) -> None:
    context = http_client_context(TlsFiles(ca=str(secrets / "ca.crt")))
    url = f"https://127.0.0.1:{ports['SPECPAIR_HTTP_PORT']}/v1/completions"
    token = (secrets / "client-token").read_text().strip()
    body = {"prompt": "def main():", "max_tokens": 8, "num_speculative_tokens": 4}
    with httpx.Client(verify=context, timeout=60) as client:
        assert client.post(url, json=body).status_code == 401
        answer = client.post(url, json=body, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"))


def test_prometheus_sees_all(project: Project, ports: dict[str, int]) -> None:
    def is_up() -> dict[str, str]:
        return {series["metric"]["job"]: series["value"][1] for series in ask_prometheus(ports, "up")}

    everything = dict.fromkeys(("coordinator", "draft", "target"), "1")
    wait_for(lambda: is_up() == everything)
    assert is_up() == everything
