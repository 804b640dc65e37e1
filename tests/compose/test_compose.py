"""Everything but Grafana, as containers: images are built, the services come up, work, and leave nothing behind."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import openai
import pytest

from specpair.native.builds import LEVEL_3, processor_features
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from tests.compose.engine import Project, find_compose, find_engine, images

pytestmark = [pytest.mark.compose, pytest.mark.needs("docker", "docker compose"), pytest.mark.timeout(2400)]

PROMPT = "def read_lines(path):\n"
PATIENCE_SECONDS = 90


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    client = find_engine()
    assert client is not None
    yield client
    client.close()


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    names = ("SPECPAIR_HTTP_PORT", "SPECPAIR_GRPC_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    numbers = {name: probe.getsockname()[1] for name, probe in zip(names, sockets, strict=True)}
    for probe in sockets:
        probe.close()
    return numbers


@pytest.fixture(scope="module")
def project(engine: Any, ports: dict[str, int]) -> Iterator[Project]:
    """Up while the tests of this file run."""
    compose = find_compose()
    assert compose is not None
    settings = {**images(engine), **{name: str(port) for name, port in ports.items()}}
    project = Project(compose, f"specpair-test-{os.getpid()}", settings)
    try:
        project.up()
        yield project
    finally:
        project.down()


def wait_for(condition: Callable[[], Any]) -> Any:
    """What the condition gives, once that is something; the last answer when patience is over."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(1)
    return answer


def ask_prometheus(ports: dict[str, int], query: str) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}/api/v1/query"
    return httpx.get(url, params={"query": query}).raise_for_status().json()["data"]["result"]


def generate(ports: dict[str, int], **options: Any) -> pb.GenerationSummary:
    """Runs a request of 24 tokens through gRPC."""
    request = pb.GenerateTokensRequest(
        text=PROMPT, max_tokens=24, ignore_eos=True, sampling={"temperature": 0}, **options
    )
    with grpc.insecure_channel(f"127.0.0.1:{ports['SPECPAIR_GRPC_PORT']}") as channel:
        responses = list(CoordinatorServiceStub(channel).GenerateTokens(request, timeout=60))
    return responses[-1].summary


def containers(engine: Any, project: Project) -> dict[str, Any]:
    """The project's containers by service."""
    label = f"com.docker.compose.project={project.name}"
    found = engine.containers.list(all=True, filters={"label": label})
    return {container.labels["com.docker.compose.service"]: container for container in found}


def test_all_become_healthy(engine: Any, project: Project) -> None:
    def states() -> dict[str, str]:
        return {name: one.attrs["State"]["Health"]["Status"] for name, one in containers(engine, project).items()}

    wait_for(lambda: set(states().values()) == {"healthy"})
    assert states() == dict.fromkeys(project.services, "healthy")


def test_openai_client(project: Project, ports: dict[str, int]) -> None:
    url = f"http://127.0.0.1:{ports['SPECPAIR_HTTP_PORT']}/v1"
    with openai.OpenAI(base_url=url, api_key="none") as client:
        model = client.models.list().data[0].id
        answer = client.completions.create(
            model=model, prompt=PROMPT, max_tokens=24, temperature=0, extra_body={"num_speculative_tokens": 4}
        )
    assert answer.choices[0].text
    assert answer.usage is not None and 0 < answer.usage.completion_tokens <= 24


def test_grpc_client(project: Project, ports: dict[str, int]) -> None:
    assert generate(ports, num_speculative_tokens=4).speculation.draft_token_count > 0


def test_prometheus_sees_all_and_acceptance(project: Project, ports: dict[str, int]) -> None:
    """After the requests above."""

    def is_up() -> dict[str, str]:
        return {series["metric"]["job"]: series["value"][1] for series in ask_prometheus(ports, "up")}

    everything = dict.fromkeys(("coordinator", "draft", "target"), "1")
    wait_for(lambda: is_up() == everything)
    assert is_up() == everything
    proposed = "sum(specpair_spec_decode_num_draft_tokens_total) > 0"
    assert wait_for(lambda: ask_prometheus(ports, proposed)), "no tokens were proposed"
    assert wait_for(lambda: ask_prometheus(ports, "sum(specpair_spec_decode_num_accepted_tokens_total) > 0"))
    rules = httpx.get(f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}/api/v1/rules").json()["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}


def test_services_run_as_nobody_special(engine: Any, project: Project) -> None:
    for name in ("target", "draft", "coordinator"):
        container = containers(engine, project)[name]
        status, who = container.exec_run(["id", "-u"])
        assert (status, who.strip()) == (0, b"10001")
        status, _ = container.exec_run(["touch", "/opt/specpair/x"])
        assert status != 0


def test_the_cache_of_models_can_be_written(engine: Any, project: Project) -> None:
    for name in ("target", "draft"):
        status, output = containers(engine, project)[name].exec_run(["touch", "/var/cache/huggingface/x"])
        assert status == 0, output


def test_the_page_is_in_the_image(project: Project, ports: dict[str, int]) -> None:
    answer = httpx.get(f"http://127.0.0.1:{ports['SPECPAIR_HTTP_PORT']}/")
    assert answer.status_code == 200
    assert "<html" in answer.text


def test_the_coordinator_has_no_torch(engine: Any, project: Project) -> None:
    status, output = containers(engine, project)["coordinator"].exec_run(["python", "-c", "import torch"])
    assert status == 1 and b"No module named 'torch'" in output


@pytest.mark.parametrize("name", ["target", "draft"])
def test_models_run_natively_without_a_compiler(engine: Any, project: Project, name: str) -> None:
    if not processor_features() >= LEVEL_3:
        pytest.skip("the images have no library for this processor")
    container = containers(engine, project)[name]
    status, _ = container.exec_run(["which", "cc", "gcc"])
    assert status == 1
    assert b"native (compiled)" in container.logs()


@pytest.mark.parametrize("name", ["target", "draft", "coordinator"])
def test_traces_need_no_other_image(engine: Any, project: Project, name: str) -> None:
    command = ["python", "-c", "import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.grpc"]
    status, output = containers(engine, project)[name].exec_run(command)
    assert status == 0, output


def test_64_requests_at_once_stay_far_below_the_limits(engine: Any, project: Project, ports: dict[str, int]) -> None:
    with ThreadPoolExecutor(64) as pool:
        summaries = list(pool.map(lambda _: generate(ports, num_speculative_tokens=2), range(64)))
    assert [summary.completion_token_count for summary in summaries] == [24] * 64
    for name in ("target", "draft", "coordinator"):
        container = containers(engine, project)[name]
        started, limit = (
            container.stats(stream=False)["pids_stats"]["current"],
            container.attrs["HostConfig"]["PidsLimit"],
        )
        assert 0 < started < limit / 4, f"{name} has {started} threads of {limit}"


def test_a_draft_that_ends_is_started_again(engine: Any, project: Project, ports: dict[str, int]) -> None:
    """Requests go on meanwhile."""
    draft = containers(engine, project)["draft"]
    draft.exec_run(["python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"])
    assert generate(ports, num_speculative_tokens=4).completion_token_count == 24

    def restarts() -> int:
        draft.reload()
        return draft.attrs["RestartCount"]

    assert wait_for(restarts) >= 1


def test_down_leaves_nothing(engine: Any, project: Project) -> None:
    """The last test: it takes everything down."""
    project.down()
    label = {"label": f"com.docker.compose.project={project.name}"}
    assert engine.containers.list(all=True, filters=label) == []
    assert engine.volumes.list(filters=label) == []
    assert engine.networks.list(filters=label) == []
