"""The n-gram counts and the copies against plain counting and plain searching, along histories that grow and shrink."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specpair.speculation import ngram, prompt_lookup, token_index
from specpair.speculation.ngram import ESCAPES, NgramPredictor
from specpair.speculation.prompt_lookup import ESCAPE, LookupPredictor, longest_match
from specpair.speculation.token_index import TokenIndex

few_tokens = st.integers(0, 3)
histories = st.lists(few_tokens, min_size=1, max_size=60)
continuations = st.lists(few_tokens, max_size=4)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short histories go beyond them."""
    monkeypatch.setattr(ngram, "WINDOW", 20)
    monkeypatch.setattr(token_index, "WINDOW", 24)
    monkeypatch.setattr(token_index, "SLACK", 3)
    monkeypatch.setattr(prompt_lookup, "WINDOW", 24)
    monkeypatch.setattr(prompt_lookup, "MAX_MATCH", 5)


def indexed(history: list[int]) -> TokenIndex:
    index = TokenIndex()
    index.follow(history, len(history))
    return index


def plain_counts(history: list[int], drafted: list[int], length: int) -> Counter[int]:
    """What followed the last `length` tokens of history and draft within the window of the history."""
    window, context = history[-ngram.WINDOW :], [*history, *drafted][-length:]
    if len(context) < length:
        return Counter()
    ends = range(length, len(window))
    return Counter(window[end] for end in ends if window[end - length : end] == context)


@settings(max_examples=300)
@given(history=histories, drafted=continuations)
def test_ngram_counts_are_those_of_plain_counting(history: list[int], drafted: list[int]) -> None:
    expected = [(length, plain_counts(history, drafted, length)) for length in (3, 2, 1)]
    predictions = list(NgramPredictor(indexed(history)).after(drafted))
    assert [dict(zip(g.token_ids, g.weights, strict=True)) for g in predictions] == [c for _, c in expected if c]
    assert [g.total for g in predictions] == [c.total() + ESCAPES[length] for length, c in expected if c]


@given(history=histories)
def test_of_equally_frequent_tokens_the_last_comes_first(history: list[int]) -> None:
    window = history[-ngram.WINDOW :]
    behind_one = [g for g in NgramPredictor(indexed(history)).after([]) if g.total == sum(g.weights) + ESCAPES[1]]
    for prediction in behind_one:
        last = {follower: end for end, (token, follower) in enumerate(pairwise(window)) if token == history[-1]}
        assert list(prediction.token_ids) == sorted(last, key=lambda token: -last[token])


def test_a_longer_context_is_asked_for_where_a_short_one_does_not_do() -> None:
    index = indexed([1, 2, 3, 0, 2, 1, 2])
    assert [g.token_ids for g in NgramPredictor(index, min_context=2).after([])] == [[3]]
    assert [g.token_ids for g in NgramPredictor(index).after([])] == [[3], [1, 3]]
    assert list(NgramPredictor(index, min_context=2).after([0])) == []


def test_many_places_of_one_token_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "MAX_PLACES", 4)
    assert [g.weights for g in NgramPredictor(indexed([7] * 10)).after([])] == [[3]] * 3


def plain_match(history: list[int]) -> tuple[int, int] | None:
    """Length and end of the longest suffix found earlier; of several the last."""
    window = history[-prompt_lookup.WINDOW :]
    for length in range(prompt_lookup.MAX_MATCH, 0, -1):
        ends = [end for end in range(length, len(window)) if window[end - length : end] == window[-length:]]
        if length <= len(window) and ends:
            return length, len(history) - len(window) + ends[-1]
    return None


@settings(max_examples=300)
@given(history=histories)
def test_the_longest_match_is_that_of_a_plain_search(history: list[int]) -> None:
    index = indexed(history)
    match = longest_match(index)
    before = len(index) - len(index.tokens)
    assert (None if match is None else (match.length, before + match.end)) == plain_match(history)


@given(history=histories, count=st.integers(1, 40))
def test_a_copy_goes_on_with_its_own_tokens(history: list[int], count: int) -> None:
    predictor, drafted, totals = LookupPredictor(indexed(history)), [], []
    for _ in range(count):
        for prediction in predictor.after(drafted):
            drafted.append(prediction.token_ids[0])
            totals.append((prediction.weights[0], prediction.total))
    match = plain_match(history)
    if match is None:
        assert drafted == []
        return
    length, end = match
    assert drafted == [[*history, *drafted][end + i] for i in range(count)]
    assert totals == [(length + i, length + i + ESCAPE) for i in range(count)]


@dataclass
class Followed:
    """A history that grows and shrinks, and an index that is told."""

    history: list[int]
    index: TokenIndex = field(default_factory=TokenIndex)

    def move(self, base: int, appended: list[int], looks: bool) -> None:
        """As a call moves a sequence: back to `base`, then on; now and then nobody looks anything up."""
        self.history = [*self.history[:base], *appended]
        self.index.truncate(base)
        if looks:
            self.index.follow(self.history, len(self.history))


moves = st.lists(st.tuples(st.integers(0, 30), st.lists(few_tokens, max_size=12), st.booleans()), max_size=25)


@settings(max_examples=300)
@given(history=histories, moves=moves, source=st.lists(few_tokens, max_size=40))
@example(history=[0, 1, 2] * 20, moves=[(0, [], True), (10, [3], True)], source=[])  # too far back for what is held
@example(history=[0, 1, 2] * 20, moves=[(0, [], True), (2, [3], True), (50, [], True)], source=[])
@example(history=[0, 1, 2] * 20, moves=[(0, [], True), (50, [], True)], source=[3] * 20)
def test_rolling_back_leaves_what_a_fresh_index_would_say(
    history: list[int], moves: list[tuple[int, list[int], bool]], source: list[int]
) -> None:
    """What an encoder reads is found as if it were the beginning of the history."""
    followed = Followed(history, TokenIndex(source))
    for back, appended, looks in moves:
        followed.move(max(1, len(followed.history) - back), appended, looks)
        if not looks:
            continue
        fresh = indexed([*source, *followed.history])
        assert len(followed.index) == len(fresh) == len(source) + len(followed.history)
        assert len(followed.index.tokens) <= 2 * token_index.WINDOW
        assert len(followed.index.tokens) >= min(len(fresh), token_index.WINDOW)
        for predictor in (NgramPredictor, LookupPredictor):
            drafted = followed.history[:1]
            for so_far in ([], drafted):
                assert list(predictor(followed.index).after(so_far)) == list(predictor(fresh).after(so_far))
        check_places(followed.index)


def check_places(index: TokenIndex) -> None:
    """Each token stands where the index says, and nowhere else; nothing is kept of tokens that are gone."""
    places = {token: list(index.places(token)) for token in set(index.tokens)}
    assert {place: token for token, own in places.items() for place in own} == dict(enumerate(index.tokens))
    assert index._places.keys() == places.keys()
