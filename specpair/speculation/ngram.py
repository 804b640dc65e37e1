"""Drafting by n-gram counts: what followed the last tokens earlier, with orders 2 to 4 in a sliding window.

It counts the tokens after the longest context found in the window: three tokens, else two, else one. The counts are the
draft's distribution, so that sampled output can be proposed as well as greedy.
"""

from collections.abc import Iterator, Sequence

from specpair.speculation.prediction import Prediction
from specpair.speculation.token_index import TokenIndex

WINDOW = 512
"""Number of tokens at the end of the history that are searched for contexts."""

MAX_CONTEXT = 3
"""Tokens of context of the highest order, 4."""

MAX_PLACES = 128
"""Most occurrences of the last token to examine, the latest ones: a text that repeats one token has hundreds."""

ESCAPES = (0.0, 3.0, 1.0, 0.5)
"""By tokens of context: the number of sightings of unseen tokens that is added to the counts, to estimate confidence.

On held-out sources a context of 1, 2, 3 tokens that was seen once was followed by the same token again in 0.25, 0.49,
0.70 of the cases; these values give 0.25, 0.5, 0.67.
"""


class NgramPredictor:
    """Counts in the last WINDOW tokens of one history."""

    def __init__(self, index: TokenIndex, min_context: int = 1):
        self._index = index
        self._min_context = min_context

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        """The counts after the longest known context, then those after shorter ones."""
        matches = self._matches([*self._index.tokens[-MAX_CONTEXT:], *drafted][-MAX_CONTEXT:])
        for length in range(MAX_CONTEXT, self._min_context - 1, -1):
            followers = [token for matched, token in matches if matched >= length]
            if followers:
                yield counted(followers, ESCAPES[length])

    def _matches(self, context: list[int]) -> list[tuple[int, int]]:
        """For each earlier occurrence of the context's last token, the latest first: how many tokens of the context
        match there, and the token after it."""
        tokens = self._index.tokens
        first, last = max(0, len(tokens) - WINDOW), len(tokens) - 1
        *_, third, second, token = (-1, -1, *context)
        matches = []
        for place in reversed(self._index.places(token)[-MAX_PLACES:]):
            if place < first:
                break
            if place == last:
                continue
            if place == first or tokens[place - 1] != second:
                matched = 1
            elif place == first + 1 or tokens[place - 2] != third:
                matched = 2
            else:
                matched = 3
            matches.append((matched, tokens[place + 1]))
        return matches


def counted(followers: Sequence[int], escape: float) -> Prediction:
    """Counts each token among `followers` [N]; equally frequent ones stay in order of first occurrence."""
    counts: dict[int, int] = {}
    for token in followers:
        counts[token] = counts.get(token, 0) + 1
    return Prediction(list(counts), list(counts.values()), len(followers) + escape)
