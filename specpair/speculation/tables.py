"""Drafting from a corpus: how often each token occurs, and how often it follows another.

A bigram row holds only the most frequent successors of its token; a token without any uses the unigram row.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from specpair.speculation.prediction import Prediction

MAX_SUCCESSORS = 64
"""Most successors of a token: on the bundled pair's corpus they hold 0.79 of the mass."""

MIN_COUNT = 2
"""A successor with fewer sightings is left out."""

UNIGRAM_SUPPORT = 256
"""Tokens of the unigram row. The remaining mass is spread so thin that it hardly affects acceptance."""


class Tables(NamedTuple):
    """Counts over a vocabulary of size V, with E successors in total."""

    unigram: np.ndarray
    """[V] uint32: sightings of each token."""
    offsets: np.ndarray
    """[V + 1] uint32: where the successors of each token begin, and the end of the last ones."""
    successors: np.ndarray
    """[E] uint16 or uint32: token ids, each token's most frequent first."""
    counts: np.ndarray
    """[E] uint32: how often each successor follows its token."""


def count_corpus(tokens: np.ndarray, vocab_size: int) -> Tables:
    """The tables of a corpus [N], token ids below `vocab_size`."""
    tokens = tokens.astype(np.int64)
    unigram = np.bincount(tokens, minlength=vocab_size)
    pairs, counts = np.unique(tokens[:-1] * vocab_size + tokens[1:], return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // vocab_size))
    pairs, counts = pairs[order], counts[order]
    owners = pairs // vocab_size
    rank = np.arange(len(owners)) - owners.searchsorted(owners)
    kept = (rank < MAX_SUCCESSORS) & (counts >= MIN_COUNT)
    return Tables(
        unigram=unigram.astype(np.uint32),
        offsets=owners[kept].searchsorted(np.arange(vocab_size + 1)).astype(np.uint32),
        successors=(pairs[kept] % vocab_size).astype(np.uint16 if vocab_size <= 2**16 else np.uint32),
        counts=counts[kept].astype(np.uint32),
    )


class UnigramPredictor:
    """The same prediction everywhere: the most frequent tokens."""

    def __init__(self, tables: Tables):
        order = np.argsort(-tables.unigram.astype(np.int64), kind="stable")[:UNIGRAM_SUPPORT]
        order = order[tables.unigram[order] > 0]
        self._prediction = Prediction(order.tolist(), tables.unigram[order].tolist(), float(tables.unigram.sum()))

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        yield self._prediction


class BigramPredictor:
    """Predicts the successors of the last token, then the unigram prediction."""

    def __init__(self, last: int, tables: Tables, unigram: UnigramPredictor):
        self._last = last
        self._tables = tables
        self._unigram = unigram

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        last = drafted[-1] if drafted else self._last
        # A target may have more tokens than the tables.
        if last < len(self._tables.unigram):
            row = slice(int(self._tables.offsets[last]), int(self._tables.offsets[last + 1]))
            if row.start < row.stop:
                successors, counts = self._tables.successors[row].tolist(), self._tables.counts[row].tolist()
                yield Prediction(successors, counts, float(self._tables.unigram[last]))
        yield from self._unigram.after(drafted)
