"""`--otel` with real processes: the spans of four of them come to a collector as one trace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.end_to_end.test_specpair import COMMAND, free_ports

Found = list[tuple[str, Span]]
"""Names of services with their spans."""


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.found: Found = []

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            (name,) = [
                entry.value.string_value for entry in resource.resource.attributes if entry.key == "service.name"
            ]
            self.found += [(name, span) for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector and its address."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.timeout(240)
def test_one_trace_over_four_processes() -> None:
    with collecting() as (collector, endpoint):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SPECPAIR_OTEL": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{endpoint}",
        }
        port, draft_port, target_port = free_ports(3)
        ports = [f"--port={port}", f"--draft-port={draft_port}", f"--target-port={target_port}"]
        with subprocess.Popen(
            [*COMMAND, "up", *ports, "--http-port=0", "--draft-metrics-port=0", "--target-metrics-port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        ) as up:
            assert up.stdout is not None
            lines = []
            for line in up.stdout:
                lines.append(line)
                if line.startswith("ready"):
                    break
            assert lines and lines[-1].startswith("ready"), "".join(lines)
            flags = ["--address", f"127.0.0.1:{port}", "--max-tokens", "8", "--num-speculative-tokens", "2"]
            done = subprocess.run([*COMMAND, "generate", "x", *flags], capture_output=True, env=environment, timeout=60)
            assert done.returncode == 0, done.stderr
            up.send_signal(signal.SIGINT)  # services that end send what is left
            rest = up.stdout.read()
            assert up.wait(timeout=60) == 0, rest
    check_one_trace(collector.found)


def check_one_trace(found: Found) -> None:
    assert len({span.trace_id for _, span in found}) == 1
    names = {(service, span.name) for service, span in found}
    assert names == {
        ("specpair-client", "generate"),
        ("specpair-coordinator", "request"),
        ("specpair-coordinator", "round"),
        ("specpair-draft", "propose"),
        ("specpair-target", "verify"),
    }
    by_id = {span.span_id: span.name for _, span in found}
    parents = {(span.name, by_id.get(span.parent_span_id)) for _, span in found}
    expected = [("generate", None), ("request", "generate"), ("round", "request"), ("propose", "round")]
    assert parents == {*expected, ("verify", "round")}


def test_without_the_extra_the_flag_is_an_error() -> None:
    script = "import sys; sys.modules['opentelemetry.sdk'] = None; from command.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", script, "generate", "x", "--otel"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.startswith("specpair: traces need opentelemetry.sdk")
