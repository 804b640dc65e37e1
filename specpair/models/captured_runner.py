"""The runner for GPUs: passes of a few rows in static buffers, repeated as CUDA graphs.

A pass of a few rows is padded to a bucket (`specpair.models.captured_buckets`). At load, or at the first pass in a
bucket, its work is captured, and from then on repeated by one call. What it does not do, the plain runner does, with
the same weights and cache: those passes are counted as misses.

In deterministic mode all passes have one number of rows, and a row's keys are padded to a number that depends on its
position alone; passes of many rows are divided. So a row's bits do not depend on the others.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from specpair.caches.cache import KeyValueCache, blocks_for
from specpair.caches.holding import Segment
from specpair.caches.out_of_memory import is_out_of_memory
from specpair.caches.paged_cache import PagedCache
from specpair.errors import ModelRefusedError, NotSupportedError
from specpair.kernels import availability
from specpair.models.batch import Batch, PassOutput
from specpair.models.capture import Work, capture_for
from specpair.models.captured_attention import Gathering, PagedKernel, RowAttentionKind
from specpair.models.captured_buckets import DETERMINISTIC_ROWS, ROWS, key_bucket, row_bucket
from specpair.models.captured_chain import CapturedChains
from specpair.models.captured_llama import CapturedLlama
from specpair.models.captured_operations import RowOperationsKind, TorchOperations
from specpair.models.captured_rows import HostRows, RowBuffers
from specpair.models.chain_miss import ChainMiss
from specpair.models.chains import Chains
from specpair.models.graph_miss import GraphMiss
from specpair.models.loading import LoadedModel
from specpair.models.plain_runner import PlainRunner
from specpair.models.refusals import first_line
from specpair.models.staging import Copy, copy_by_torch

log = logging.getLogger(__name__)

MOST_GATHERED = 1 << 17
"""Rows times keys that a pass gathers: 128 rows of 1,024 keys, or 16 of 8,192."""
PROMPTS = (1, 4, 16)
"""Prompts of a pass that are read at load."""
MOST_GATHERED_ALWAYS = 1 << 20
"""In deterministic mode, where no other runner can step in."""


class CapturedRunner:
    """Runs Llama-shaped models with a paged cache that has a spare block."""

    description = "captured"

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        """Raises ModelRefusedError for another cache."""
        if not isinstance(cache, PagedCache) or not cache.has_spare_block:
            raise ModelRefusedError("--runner captured needs a paged cache with a spare block")
        facts = loaded.facts
        self.cache: KeyValueCache = cache
        self._paged = cache
        self.device = facts.device
        self.no_trees = "trees of tokens are not supported with --deterministic" if facts.is_deterministic else ""
        self.misses: Counter[GraphMiss] = Counter()
        """Passes that the plain runner ran, by the reason."""
        self._is_deterministic = facts.is_deterministic
        self._sizes = DETERMINISTIC_ROWS if facts.is_deterministic else ROWS
        self._width = blocks_for(facts.max_model_len, cache.block_size)
        self._plain = PlainRunner(loaded, cache)
        why = availability.refusal(facts.device, facts.dtype, cache.block_size)
        self._attention: RowAttentionKind = Gathering(cache.block_size) if why else PagedKernel(cache.block_size)
        self._network = CapturedLlama(loaded.model, facts, operations(has_kernels=not why))
        self._buffers = RowBuffers(self._sizes[-1], self._width, cache, copying(has_kernels=not why))
        self._capture = capture_for(self.device)
        self._captured: dict[tuple[int, int], Work] = {}
        most = MOST_GATHERED_ALWAYS // self._sizes[-1]
        if facts.is_deterministic and self._attention.is_sized and facts.max_model_len > most:
            raise ModelRefusedError(
                f"--runner captured --deterministic gathers at most {most} keys: {why}; lower --max-model-len"
            )
        self.chains: Chains | None = None
        """Draws proposals; None in deterministic mode."""
        if not facts.is_deterministic:
            self.chains = CapturedChains(self._logits, self._keys_of_chains, self._buffers, cache, self._capture)
        self.chain_misses: Counter[ChainMiss] = Counter()
        """Proposals that were drawn with the host between their tokens, by the reason."""
        self.description = f"{self._capture.description}, {self._attention.description}"
        if why:
            log.info("%s, by torch's operators: %s", self._attention.description, why)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        if self._is_deterministic:
            if batch.parents is not None:
                raise NotSupportedError(self.no_trees)
            return self._run_divided(batch)
        miss = self._miss(batch)
        if miss is None:
            logits = self._run(HostRows.of(batch, self._paged, self._width), batch.rows)
            return PassOutput(logits.index_select(0, self._buffers.wanted(len(batch.rows))))
        if not self.misses[miss]:
            log.info("%s: first pass %s: %s", self.description, self._plain.description, miss)
        self.misses[miss] += 1
        return self._plain.forward(batch)

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """Rows and keys of what has been captured; 0 keys where their number does not matter."""
        return sorted(self._captured)

    def _miss(self, batch: Batch) -> GraphMiss | None:
        if batch.parents is not None:
            return GraphMiss.TREE
        if batch.feature_layers:
            return GraphMiss.FEATURES
        if len(batch.token_ids) > self._sizes[-1]:
            return GraphMiss.ROWS
        key_count = self._keys(max(batch.positions) + 1)
        gathered = row_bucket(len(batch.token_ids), self._sizes) * key_count
        return GraphMiss.KEYS if self._attention.is_sized and gathered > MOST_GATHERED else None

    def _run_divided(self, batch: Batch) -> PassOutput:
        """In passes of one size, whose rows have the same bucket of keys. Short rows go first: a row's own sequence
        must be stored up to it."""
        rows = HostRows.of(batch, self._paged, self._width)
        buckets = np.array([self._keys(int(count)) for count in rows.key_counts])
        parts: list[Tensor] = []
        features: list[Tensor] = []
        order: list[int] = []
        for bucket in np.unique(buckets):
            members: list[int] = np.flatnonzero(buckets == bucket).tolist()
            for first in range(0, len(members), self._sizes[-1]):
                some = members[first : first + self._sizes[-1]]
                order += some
                if batch.feature_layers:
                    logits, states = self._run_with_features(rows.take(some), batch.feature_layers)
                    features.append(states)
                else:
                    logits = self._run(rows.take(some)).clone()
                parts.append(logits)
        places = torch.from_numpy(np.argsort(order)).to(self.device)
        wanted = places[torch.tensor(batch.rows, dtype=torch.int64, device=self.device)]
        told = places[torch.tensor(batch.feature_rows, dtype=torch.int64, device=self.device)]
        return PassOutput(torch.cat(parts)[wanted], torch.cat(features, 1)[:, told] if features else None)

    def _run(self, rows: HostRows, wanted: Sequence[int] = ()) -> Tensor:
        """The logits `[rows, vocabulary]`, which the next pass overwrites; which are `wanted` stays in the buffers."""
        row_count = row_bucket(len(rows), self._sizes)
        work = self._work(row_count, self._keys(int(rows.key_counts.max())))
        return self._buffers.run(work, rows, row_count, wanted)[: len(rows)]

    def _work(self, row_count: int, key_count: int) -> Work:
        """The captured pass. It runs while it is captured, so the rows are all padding then."""
        bucket = (row_count, key_count if self._attention.is_sized else 0)
        if bucket not in self._captured:
            self._buffers.clear(row_count)
            self._captured[bucket] = self._capture(partial(self._loaded_logits, row_count, key_count))
        return self._captured[bucket]

    @torch.inference_mode()
    def prepare(self) -> None:
        """Captures the passes of all sizes, if they are the same for every length, and runs some that are not captured.
        Otherwise the first requests would wait for it, and what they took would count as usual. The largest go first:
        smaller ones use its memory."""
        if not self._attention.is_sized:
            with until_memory_is_short():
                for row_count in reversed(self._sizes):
                    self._work(row_count, 0)
                for prompt_count in PROMPTS:
                    self._read_prompts(prompt_count)

    def _read_prompts(self, count: int) -> None:
        """A pass over so many prompts that are too long for a graph: libraries load their kernels at the first one.
        Does nothing if there is no room."""
        length = min(self._sizes[-1] + 1, self._width * self.cache.block_size)
        if self._is_deterministic or count * blocks_for(length, self.cache.block_size) > self.cache.free_block_count:
            return
        holdings = [self.cache.open([]) for _ in range(count)]
        try:
            for holding in holdings:
                self.cache.append(holding, length)
            segments = [Segment(holding, 0, length) for holding in holdings]
            self._plain.forward(Batch.of_chains(segments, [0] * (count * length), [1] * count))
        finally:
            for holding in holdings:
                self.cache.free(holding)

    @torch.inference_mode()
    def prepare_chains(self) -> None:
        """The same for proposals by the usual options. If that fails, proposals are drawn token by token."""
        if isinstance(self.chains, CapturedChains) and not self._attention.is_sized:
            try:
                with until_memory_is_short():
                    self.chains.prepare(self._network.vocab_size)
            except Exception as error:  # the compiler of kernels and the driver have errors of their own
                log.warning("proposals are drawn token by token: they cannot be captured: %s", first_line(error))
                self.chains = None

    def _loaded_logits(self, row_count: int, key_count: int) -> Tensor:
        self._buffers.load(row_count)
        return self._logits(row_count, key_count)

    def _logits(self, row_count: int, key_count: int) -> Tensor:
        """Of the rows that are on the device."""
        rows = self._buffers.first(row_count)
        return self._network.forward(rows, self._attention.over(rows, key_count), self._paged)[0]

    def _run_with_features(self, rows: HostRows, layers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Logits `[rows, vocabulary]` and features `[layers, rows, hidden]`, in the same shapes but not captured."""
        row_count, key_count = row_bucket(len(rows), self._sizes), self._keys(int(rows.key_counts.max()))
        features: list[Tensor] = []

        def work() -> Tensor:
            fed = self._buffers.load(row_count)
            attend = self._attention.over(fed, key_count)
            logits, states = self._network.forward(fed, attend, self._paged, layers)
            features.extend(states)
            return logits

        logits = self._buffers.run(work, rows, row_count)
        return logits[: len(rows)], torch.stack(features)[:, : len(rows)]

    def _keys_of_chains(self, row_count: int, key_count: int) -> int | None:
        keys = self._keys(min(key_count, self._width * self.cache.block_size)) if self._attention.is_sized else 0
        return keys if row_count * keys <= MOST_GATHERED else None

    def _keys(self, key_count: int) -> int:
        return key_bucket(key_count, self._width * self.cache.block_size)


@contextmanager
def until_memory_is_short() -> Iterator[None]:
    """What was not captured for want of memory is tried again at its first use, and counted."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        log.warning("not everything could be captured at load: %s", first_line(error))


def copying(*, has_kernels: bool) -> Copy:
    """How passes read what the host wrote."""
    if not has_kernels:
        return copy_by_torch
    from specpair.kernels.copy_kernel import copy  # imports triton

    return copy


def operations(*, has_kernels: bool) -> RowOperationsKind:
    """Those of all passes."""
    if not has_kernels:
        return TorchOperations
    from specpair.models.kernel_operations import KernelOperations  # imports triton

    return KernelOperations
