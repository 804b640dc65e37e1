"""Repeats the same work over tensors that stay in place: as a CUDA graph, or on a CPU by doing it again."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

Work: TypeAlias = Callable[[], Tensor]
WARM_UPS = 2
"""Runs before a graph is captured: libraries choose their kernels and workspaces in the first."""


class Capture(Protocol):
    """Makes work repeatable."""

    description: str

    def __call__(self, work: Work) -> Work:
        """Work that does the same with what is in its input tensors then. All calls return the same tensor, and each
        overwrites what the one before it returned."""
        ...


class GraphCapture:
    """CUDA graphs, which share one pool of memory: none runs while another does."""

    description = "captured in CUDA graphs"

    def __init__(self, device: torch.device):
        self._device = device
        self._pool: Any = None

    def __call__(self, work: Work) -> Work:
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    work()
        finally:  # where memory was short, others still use the same tensors
            torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # Other threads of the process may use the device meanwhile.
        with without_collections(), torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = work()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


@contextmanager
def without_collections() -> Iterator[None]:
    """Holds back Python's collector of cycles: it may find tensors and graphs that nobody uses any more, and to give
    back their memory would break a capture off."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class EagerCapture:
    """Does the work each time, and returns it as a graph does: always in the same tensor."""

    description = "captured in fixed shapes, without CUDA graphs"

    def __call__(self, work: Work) -> Work:
        output = work()

        def replay() -> Tensor:
            return output.copy_(work())

        return replay


def capture_for(device: torch.device) -> Capture:
    """CUDA graphs on a GPU."""
    return GraphCapture(device) if device.type == "cuda" else EagerCapture()
