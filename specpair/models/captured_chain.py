"""Whole proposals drawn on the device: after a pass, each step draws a token for every sequence and runs the pass that
feeds it, as a captured graph. The host starts the steps one after the other, waits for none, and copies all tokens and
distributions once at the end.

A step leaves the input of the next one in the buffers. A row whose proposal is complete goes on as padding does: it
writes to the spare block, and nobody reads what it draws.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from specpair.caches.paged_cache import PagedCache
from specpair.models.capture import Capture, Work
from specpair.models.captured_buckets import ROWS, row_bucket
from specpair.models.captured_rows import DeviceRows, HostRows, RowBuffers
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainKind, ChainRow, DrawnChain
from specpair.models.chain_tensors import MOST_STEPS, ChainTensors
from specpair.models.chains import WHOLE_TURN, Turn
from specpair.options import SequenceOptions
from specpair.speculation.device_counts import device_counts, draw_counted
from specpair.speculation.device_race import race
from specpair.speculation.sampling import finite_rows, probabilities, softmax
from specpair.speculation.sparse_rows import MASS_CUT, MAX_SUPPORT

CHAIN_ROWS = ROWS[: ROWS.index(32) + 1]
"""Sequences that propose together."""

MOST_KINDS = 16
"""Kinds of options that are captured: clients choose them, and each takes memory that is never given back."""

PREPARED_ROWS = CHAIN_ROWS[:4]
"""Sequences together whose steps are captured at load."""

Forward: TypeAlias = Callable[[int, int], Tensor]
"""The logits of the first so many rows in the buffers, which see at most so many keys."""
Keys: TypeAlias = Callable[[int, int], int | None]
"""The keys that a pass of so many rows is captured for if they see at most so many; None if that is too much."""

Bucket: TypeAlias = tuple[int, int | None, ChainKind]
"""Rows, keys and kind; the draw from the first pass has no keys."""


class CapturedChains:
    """Draws chains with a runner of captured passes. Device thread only."""

    most_steps = MOST_STEPS
    most_rows = CHAIN_ROWS[-1]
    takes_turns = False

    def __init__(self, forward: Forward, keys: Keys, buffers: RowBuffers, cache: PagedCache, capture: Capture):
        self._forward = forward
        self._keys = keys
        self._buffers = buffers.beside()  # so that a draw is started while the pass before it runs
        self._cache = cache
        self._capture = capture
        self._tensors: dict[tuple[int, ChainKind], ChainTensors] = {}
        self._captured: dict[Bucket, Work] = {}
        self._kinds: set[ChainKind] = set()

    def prepare(self, vocab_size: int) -> None:
        """Captures the steps of a few proposals with the usual options, where the number of keys does not matter."""
        for row_count in reversed(PREPARED_ROWS):
            for kind in ChainKind.usual(vocab_size):
                self._works(row_count, 0, kind, vocab_size)

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """None: all are drawn."""
        return None

    def miss(self, chains: Sequence[ChainRow], vocab_size: int) -> ChainMiss | None:
        if len(self._kinds) >= MOST_KINDS and ChainKind.of(chains, vocab_size) not in self._kinds:
            return ChainMiss.KINDS
        return ChainMiss.KEYS if self._key_count(chains) is None else None

    def _key_count(self, chains: Sequence[ChainRow]) -> int | None:
        """The keys that the steps of these chains are captured for; None if the chains are too long for so many."""
        return self._keys(row_bucket(len(chains), CHAIN_ROWS), max(chain.position + chain.count for chain in chains))

    def draw(self, logits: Tensor, chains: Sequence[ChainRow], turn: Turn = WHOLE_TURN) -> list[DrawnChain]:
        """All of them to their ends."""
        key_count = self._key_count(chains)
        assert key_count is not None, "a miss"
        row_count, kind = row_bucket(len(chains), CHAIN_ROWS), ChainKind.of(chains, logits.size(1))
        tensors, draw, step = self._works(row_count, key_count, kind, logits.size(1))
        tensors.fill(chains, logits)
        last_fed = [(chain.holding, chain.position - 1) for chain in chains]
        step_count = max(chain.count for chain in chains)
        rows = HostRows.unfed(last_fed, self._cache, self._buffers.width)
        self._buffers.run(partial(tensors.staging.run, draw), rows, row_count)
        for _ in range(step_count - 1):
            step()
        return tensors.fetch(chains, step_count)

    def _works(self, row_count: int, key_count: int, kind: ChainKind, width: int) -> tuple[ChainTensors, Work, Work]:
        """The tensors of such chains, the draw from the first logits, and a step."""
        tensors = self._tensors_for(row_count, kind, width)
        draw = self._work((row_count, None, kind), partial(self._first_draw, row_count, tensors))
        step = self._work((row_count, key_count, kind), partial(self._step, row_count, key_count, tensors))
        return tensors, draw, step

    def _tensors_for(self, row_count: int, kind: ChainKind, vocab_size: int) -> ChainTensors:
        key = (row_count, kind)
        if key not in self._tensors:
            self._tensors[key] = ChainTensors(row_count, kind, vocab_size, self._cache.device, self._buffers.copy)
            self._kinds.add(kind)
        return self._tensors[key]

    def _work(self, key: Bucket, work: Work) -> Work:
        """The captured work. It runs while it is captured, so the rows are all padding then."""
        if key not in self._captured:
            self._tensors[key[0], key[2]].clear()
            self._buffers.clear(key[0])
            self._captured[key] = self._capture(work)
        return self._captured[key]

    def _first_draw(self, row_count: int, tensors: ChainTensors) -> Tensor:
        self._buffers.load(row_count)
        tensors.load()
        return self._draw(row_count, tensors)

    def _step(self, row_count: int, key_count: int, tensors: ChainTensors) -> Tensor:
        tensors.logits.copy_(self._forward(row_count, key_count))
        return self._draw(row_count, tensors)

    def _draw(self, row_count: int, tensors: ChainTensors) -> Tensor:
        """Draws a token for each row from its logits, notes it, and makes it the row's next input."""
        logits = tensors.masked_logits()
        rows = self._buffers.first(row_count)
        tokens, counted = chosen_tokens(logits, tensors, rows)
        tensors.note(tokens, finite_rows(logits), shares(logits, tokens, tensors.kind), counted)
        is_fed = tensors.step + 1 < tensors.counts
        position = rows.positions + is_fed
        blocks = rows.tables.gather(1, (position // self._cache.block_size)[:, None])[:, 0]
        slots = blocks * self._cache.block_size + position % self._cache.block_size
        rows.token_ids.copy_(tokens)
        rows.positions.copy_(position)
        rows.slots.copy_(slots.masked_fill(~is_fed, self._buffers.spare_slot))
        tensors.next_step()
        return tensors.records


def chosen_tokens(logits: Tensor, tensors: ChainTensors, rows: DeviceRows) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The next token of each row, int64 `[rows]`, and the ids and counts `[rows, support]` from which it was drawn, if
    any row of this kind sends them."""
    kind = tensors.kind
    if kind.use.all_greedy:
        return logits.argmax(-1), ()
    distributions = probabilities(logits, tensors)
    raced = race(distributions, tensors.seeds, rows.positions + 1) if kind.races else None
    if not kind.draws:
        assert raced is not None
        return raced, ()
    token_ids, counts = device_counts(distributions, MASS_CUT, MAX_SUPPORT)
    tokens = draw_counted(token_ids, counts, tensors.bits_now())
    tokens = tokens.clamp_max(logits.size(1) - 1)  # of a row that is not finite
    return tokens if raced is None else raced.where(tensors.are_raced, tokens), (token_ids, counts)


def shares(logits: Tensor, tokens: Tensor, kind: ChainKind) -> Tensor:
    """The probability of each token at temperature 1, float32 `[rows]`, if any row of this kind asks for it."""
    if not kind.weighs:
        return torch.ones(len(tokens), device=tokens.device)
    return softmax(logits).gather(-1, tokens[:, None])[:, 0]
