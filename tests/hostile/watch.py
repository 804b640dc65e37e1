"""Checks from outside that the services still answer; in a thread, so that it does not wait for the attacker."""

import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE = 0.25
PATIENCE = 30.0


class Watch:
    """Asks all health checks again and again until it is stopped."""

    def __init__(self, addresses: dict[str, str]):
        self.longest_seconds: dict[str, float] = {}
        """Per service, of any check."""
        self.check_count = 0
        self.failures: list[str] = []
        self._addresses = addresses
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        checks = {name: self._grpc_check(address) for name, address in self._addresses.items() if name != "http"}
        checks["http"] = self._check_http
        while not self._stop.is_set():
            for name, check in checks.items():
                begin = time.monotonic()
                try:
                    check()
                except Exception as error:  # whatever keeps a health check from its answer
                    self.failures.append(f"the health check of {name} failed: {error!r}"[:300])
                self.check_count += 1
                self.longest_seconds[name] = max(self.longest_seconds.get(name, 0.0), time.monotonic() - begin)
            self._stop.wait(PAUSE)

    def _grpc_check(self, address: str) -> Callable[[], None]:
        stub: Any = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))

        def check() -> None:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

        return check

    def _check_http(self) -> None:
        with urllib.request.urlopen(f"http://{self._addresses['http']}/health", timeout=PATIENCE) as answer:
            assert answer.status == 200
