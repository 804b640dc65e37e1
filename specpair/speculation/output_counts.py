"""How often each token is in an output, kept while the output grows and is rolled back."""

import numpy as np

from specpair.prefixes import common_length


class OutputCounts:
    """Counts for one sequence. Penalties ask for them at every row, and an output may have many thousand tokens: what
    has changed since the last question is counted, not the whole output."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._counts: dict[int, int] = {}

    def of(self, output: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that the output has, each once in no special order, and how often: int64 [seen], [seen]."""
        common = common_length(self._tokens, output)
        for token in self._tokens[common:]:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]
        added = output[common:]
        for token in added:
            self._counts[token] = self._counts.get(token, 0) + 1
        self._tokens[common:] = added
        seen = len(self._counts)
        return np.fromiter(self._counts.keys(), np.int64, seen), np.fromiter(self._counts.values(), np.int64, seen)
