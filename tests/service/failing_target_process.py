"""A target as a process of its own, whose device fails when it reads a certain token.

Usage: python -m tests.service.failing_target_process FOLDER TOKEN FAILURE PASS_TIMEOUT
"""

import sys
import threading
import time
from typing import Any

from specpair.engine_config import EngineConfig
from specpair.models.batch import Batch, PassOutput
from specpair.models.plain_runner import PlainRunner
from specpair.server.config import ServerConfig
from target_service.serve import serve

LOST = "CUDA error: device-side assert triggered"
LONG_PASS_SLEEPS = 12
"""Of a tenth of a second: one sleep would be over at once after a process was stopped for longer."""


class FailingDevice:
    """Lost at the token, as CUDA is, and in every pass after it; or it hangs there; or takes long, and goes on."""

    def __init__(self, token_id: int, failure: str):
        self._token_id = token_id
        self._failure = failure
        self._is_lost = False

    def before(self, batch: Batch) -> None:
        # The passes that are measured at start read the token too, in batches of several sequences.
        is_bad = self._token_id in batch.token_ids and len(batch.segments) == 1
        if is_bad and self._failure == "hang":
            threading.Event().wait()
        if is_bad and self._failure == "long":
            print("a long pass has begun", file=sys.stderr, flush=True)
            for _ in range(LONG_PASS_SLEEPS):
                time.sleep(0.1)
        self._is_lost = self._is_lost or (is_bad and self._failure == "lost")
        if self._is_lost:
            raise RuntimeError(LOST)


def break_device(device: FailingDevice) -> None:
    forward = PlainRunner.forward

    def fail(self: Any, batch: Batch) -> PassOutput:
        device.before(batch)
        return forward(self, batch)

    PlainRunner.forward = fail  # type: ignore[method-assign]


def main(folder: str, token_id: int, failure: str, pass_timeout: float) -> None:
    break_device(FailingDevice(token_id, failure))
    engine = EngineConfig(
        model=folder, dtype="float32", device="cpu", block_size=4, runner="plain", pass_timeout=pass_timeout
    )
    serve(engine, ServerConfig(port=0, grace_seconds=0.2))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
