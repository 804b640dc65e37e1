"""Statistics of an engine as plain numbers, written by the device thread, readable from any thread."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specpair.models.chain_miss import ChainMiss
from specpair.models.graph_miss import GraphMiss


class Tally:
    """A histogram. Adding a sample takes less than a microsecond, so each forward pass can add several."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        """Inclusive upper bounds of the buckets; there is one more bucket after the last."""
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of all samples."""

    def add(self, sample: float) -> None:
        self.counts[bisect_left(self.bounds, sample)] += 1
        self.total += sample


SEQUENCE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKEN_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Doubling, since the cost of a pass depends on the order of magnitude; the last are budgets of large GPUs."""
FORWARD_BOUNDS = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""From a step of the smallest draft to a long prefill on a CPU. For decode passes each bound is at most 1.5 times the
one before, a difference that decides whether speculation pays."""
QUEUE_BOUNDS = (
    0.00001,
    0.00002,
    0.00005,
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.5,
    2.0,
    10.0,
)
"""From an idle device thread, with tens of microseconds, to a queue after long prefills."""


class PassSteps(NamedTuple):
    """How many steps a pass took: one, and one for each further token of proposals that it drew whole."""

    all: int
    joinable: int
    """Those after which other works could join."""


class EngineStatistics:
    """Counts and times since the engine started. Times are in seconds."""

    def __init__(self) -> None:
        self.batch_sequences = Tally(SEQUENCE_BOUNDS)
        self.batch_tokens = Tally(TOKEN_BOUNDS)
        self.forward_time = Tally(FORWARD_BOUNDS)
        self.queue_time = Tally(QUEUE_BOUNDS)
        self.prefill_tokens = 0
        """Tokens fed without using their logits."""
        self.decode_tokens = 0
        """Tokens whose logits were used."""
        self.drawn_tokens = 0
        """Tokens that the pass under way fed while it drew whole proposals; `add_pass` takes them."""
        self.drawn_steps = self.joinable_steps = 0
        """Its further steps meanwhile, and those after which it could have been stopped; `take_steps` takes them."""
        self.encoded_inputs = 0
        """Passes of an encoder, one for each input that it read."""
        self.graph_misses: Mapping[GraphMiss, int] = {}
        """Passes that a runner of captured passes left to the plain one, by the reason; it counts them itself."""
        self.chain_misses: Mapping[ChainMiss, int] = {}
        """Proposals that a draft whose runner can draw whole ones drew token by token, by the reason; the runner's."""
        self.evicted_blocks = 0
        """Cache blocks taken from open sequences for others."""
        self.preemptions = 0
        """Times that an open sequence lost its cache to others."""
        self.silence = 0.0
        """Seconds without a sign of life from the device thread; DeviceWatch writes it."""

    def take_steps(self) -> PassSteps:
        """The steps of the pass that ends now."""
        steps = PassSteps(1 + self.drawn_steps, 1 + self.joinable_steps)
        self.drawn_steps = self.joinable_steps = 0
        return steps

    def add_pass(self, sequence_count: int, token_count: int, row_count: int, seconds: float) -> None:
        """Counts a forward pass that gave the logits of `row_count` tokens, with the proposals that were drawn whole
        after it: its seconds are theirs, too."""
        token_count += self.drawn_tokens
        row_count += self.drawn_tokens
        self.drawn_tokens = 0
        self.batch_sequences.add(sequence_count)
        self.batch_tokens.add(token_count)
        self.forward_time.add(seconds)
        self.decode_tokens += row_count
        self.prefill_tokens += token_count - row_count
