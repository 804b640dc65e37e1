"""How often each token is in an output, kept while the output grows and is rolled back."""

from collections import Counter

import numpy as np

from specpair.prefixes import common_length


class OutputCounts:
    """Counts for one sequence. Penalties ask for them at every row, and an output may have many thousand tokens: what
    has changed since the last question is counted, not the whole output."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._counts: Counter[int] = Counter()

    def of(self, output: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that the output has, each once in no special order, and how often: int64 [seen], [seen]."""
        common = common_length(self._tokens, output)
        for token in self._tokens[common:]:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]
        added = output[common:]
        self._counts.update(added)
        self._tokens[common:] = added
        seen = len(self._counts)
        return np.fromiter(self._counts.keys(), np.int64, seen), np.fromiter(self._counts.values(), np.int64, seen)
