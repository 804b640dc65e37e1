"""Single forward passes of a model runner, in this process."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.utils import logging

from bench.options import BenchOptions
from bench.threads import wanted_threads
from specpair.caches.holding import Holding, Segment
from specpair.engine_config import EngineConfig
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.models.runner import Runner


@dataclass(frozen=True, kw_only=True)
class TimedRunner:
    """The runner of a service, with the service's number of threads."""

    runner: Runner
    threads: int

    @classmethod
    def load(cls, model: str, options: BenchOptions) -> "TimedRunner":
        logging.disable_progress_bar()
        _, runner = load_runner(
            EngineConfig(model=model, dtype=options.dtype, device=options.device, threads=wanted_threads())
        )
        return cls(runner=runner, threads=torch.get_num_threads())

    @contextmanager
    def sequences(self, token_ids: list[int], count: int) -> Iterator[list[Holding]]:
        """`count` sequences that hold the tokens."""
        holdings = [self.runner.cache.open([]) for _ in range(count)]
        for holding in holdings:
            feed(self.runner, [holding], [token_ids], rows=1)
        yield holdings
        for holding in holdings:
            self.runner.cache.free(holding)

    def pass_seconds(self, holdings: Sequence[Holding], chunk: list[int]) -> float:
        """Seconds of one pass that feeds the chunk to each sequence and computes all rows; sequences are restored."""
        length = holdings[0].length
        torch.set_num_threads(self.threads)  # another runner may have set its own
        started = time.perf_counter()
        feed(self.runner, holdings, [chunk] * len(holdings), rows=len(chunk))
        synchronize()
        seconds = time.perf_counter() - started
        for holding in holdings:
            self.runner.cache.truncate_to(holding, length)
        return seconds


def feed(runner: Runner, holdings: Sequence[Holding], chunks: Sequence[list[int]], *, rows: int) -> Tensor:
    """One forward pass over a chunk of each sequence; the logits of the last `rows` tokens of each."""
    segments = []
    for holding, chunk in zip(holdings, chunks, strict=True):
        segments.append(Segment(holding, holding.length, len(chunk)))
        runner.cache.append(holding, len(chunk))
    token_ids = [token for chunk in chunks for token in chunk]
    return runner.forward(Batch.of_chains(segments, token_ids, [rows] * len(chunks))).logits


def synchronize() -> None:
    """Waits for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
