"""Measures what forward passes take by their number of tokens, once, when a model has been loaded.

A coordinator that knows it need not find out at the cost of its first requests which proposals pay.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from specpair.caches.cache import blocks_for, token_bytes
from specpair.caches.holding import Holding, Segment
from specpair.engine_config import Pace
from specpair.model_info import PassCost
from specpair.models.batch import Batch
from specpair.models.model_facts import ModelFacts
from specpair.models.runner import Runner
from specpair.models.weight_format import AS_THEY_ARE, FORMATS

TOKEN_COUNTS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)
SEQUENCE_TOKENS = 4
"""Tokens of each sequence in a pass: a usual proposal and the token before it."""
REPETITIONS = 4
"""Passes of each size, of which the first warms up; the fastest counts, because anything else on the machine only adds
time."""
MOST_SECONDS = 0.6
"""No further size is begun after this time."""


@torch.inference_mode()
def measure_passes(runner: Runner, vocab_size: int, pace: Pace | None = None) -> tuple[PassCost, ...]:
    """Times of passes in which all logits are computed, smallest first; as many sizes as time and cache allow. With a
    pace, what they will take."""
    end = time.perf_counter() + MOST_SECONDS
    costs: list[PassCost] = []
    with scratch_sequences(runner) as holdings:
        for token_count in TOKEN_COUNTS:
            if token_count > SEQUENCE_TOKENS * len(holdings):
                break
            seconds = [timed(runner, holdings, token_count, vocab_size) for _ in range(REPETITIONS)]
            least = 0.0 if pace is None else pace.of_pass(token_count)
            costs.append(PassCost(token_count=token_count, seconds=max(min(seconds[1:]), least)))
            if time.perf_counter() + REPETITIONS * min(seconds[1:]) > end:
                break
    return tuple(costs)


def cached_token_seconds(facts: ModelFacts, costs: Sequence[PassCost]) -> float:
    """How much longer a pass takes for each token in the cache of its sequences: a pass of one token is taken to read
    the weights once, and a cached token to take as long for each byte.

    0 if no pass was measured, and on accelerators, where a small pass is held up by starting its kernels. Layers with a
    sliding window are left out. Too small where attention is held up by arithmetic, too large where a pass is by
    anything but memory.
    """
    if not costs or not facts.parameter_count or facts.device.type != "cpu":
        return 0.0
    whole = {layer: shape for layer, shape in facts.layers.items() if not _window(facts, layer)}
    packing = FORMATS[facts.packing].layers
    bits = 8 * facts.dtype.itemsize if packing is AS_THEY_ARE else packing.bits
    weight_bytes = facts.parameter_count * bits / 8 / facts.tensor_parallel_size
    return costs[0].seconds * token_bytes(whole, facts.dtype) / weight_bytes


def _window(facts: ModelFacts, layer: int) -> int | None:
    variant = facts.variants.get(layer)
    return None if variant is None else variant.sliding_window


@contextmanager
def scratch_sequences(runner: Runner) -> Iterator[list[Holding]]:
    """Empty sequences, as many as are needed and fit into the cache."""
    cache = runner.cache
    fitting = cache.free_block_count // blocks_for(SEQUENCE_TOKENS, cache.block_size)
    holdings = [cache.open([]) for _ in range(min(fitting, TOKEN_COUNTS[-1] // SEQUENCE_TOKENS))]
    try:
        yield holdings
    finally:
        for holding in holdings:
            cache.free(holding)


def timed(runner: Runner, holdings: list[Holding], token_count: int, vocab_size: int) -> float:
    """Seconds of a pass over so many tokens; the sequences are restored."""
    full, rest = divmod(token_count, SEQUENCE_TOKENS)
    parts = list(zip(holdings, [SEQUENCE_TOKENS] * full + [rest] * (rest > 0), strict=False))
    begun = time.perf_counter()
    run(runner, parts, vocab_size)
    seconds = time.perf_counter() - begun
    for holding, _ in parts:
        runner.cache.truncate_to(holding, 0)
    return seconds


def run(runner: Runner, parts: list[tuple[Holding, int]], vocab_size: int) -> None:
    """One pass that feeds so many tokens to each sequence and computes all their logits."""
    segments: list[Segment] = []
    for holding, count in parts:
        segments.append(Segment(holding, holding.length, count))
        runner.cache.append(holding, count)
    counts = [count for _, count in parts]
    token_ids = [(7 * index) % vocab_size for index in range(sum(counts))]
    logits = runner.forward(Batch.of_chains(segments, token_ids, counts)).logits
    logits[-1, -1].item()  # waits for a device that computes on its own
