"""A target as a process of its own, whose device is lost when it reads a certain token.

Usage: python -m tests.service.failing_target_process FOLDER TOKEN
"""

import sys
from typing import Any

import torch

from specpair.engine.batch import Batch
from specpair.engine.config import EngineConfig
from specpair.engine.model_runner import ModelRunner
from specpair.rpc.config import ServerConfig
from target_service.serve import serve

LOST = "CUDA error: device-side assert triggered"


def lose_device_at(token_id: int) -> None:
    """From now on a pass that feeds the token fails as CUDA does, and every pass after it."""
    forward = ModelRunner.forward
    lost = False

    def fail(self: Any, batch: Batch) -> torch.Tensor:
        nonlocal lost
        lost = lost or token_id in batch.token_ids
        if lost:
            raise RuntimeError(LOST)
        return forward(self, batch)

    ModelRunner.forward = fail  # type: ignore[method-assign]


def main(folder: str, token_id: int) -> None:
    lose_device_at(token_id)
    engine = EngineConfig(model=folder, dtype="float32", device="cpu", block_size=4, runner="plain")
    serve(engine, ServerConfig(port=0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
