"""The pure parts of the drafters without a model: rows of counts, shaping by options, the shared noise, the loop."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from draft_service.drafters.predicting import dense_row
from specpair.options import Rule, SamplingOptions
from specpair.speculation.count_row import TOTAL, CountRow, count_row, draw_token
from specpair.speculation.gumbel import choose
from specpair.speculation.ngram import NgramPredictor
from specpair.speculation.predicted_proposal import COUPLED_CANDIDATES, Drawn, ProposalTask, draw_proposal
from specpair.speculation.prediction import Prediction
from specpair.speculation.randomness import BITS, Domain, draw_bits, random_bits
from specpair.speculation.shaping import Shaping
from specpair.speculation.sparse_gumbel import choose_among
from specpair.speculation.sparse_rows import draw_counts
from specpair.speculation.tables import MAX_SUCCESSORS, BigramPredictor, UnigramPredictor, count_corpus
from specpair.speculation.token_index import TokenIndex
from specpair.speculation.uniform import SUPPORT, UniformPredictor
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import decode, encode_dense
from tests.option_strategies import sampling_options
from tests.reference import plain_distribution

VOCABULARY = 12
weight_lists = st.lists(st.one_of(st.integers(1, 50), st.floats(1e-12, 1e12)), min_size=1, max_size=VOCABULARY)
seeds = st.integers(0, 2**64 - 1)


class Fixed:
    """Says the same predictions for every position; from `end` on none."""

    def __init__(self, *predictions: Prediction, end: int = 99):
        self._predictions = predictions
        self._end = end

    def after(self, drafted: list[int]) -> Iterator[Prediction]:
        if len(drafted) < self._end:
            yield from self._predictions


def a_task(**changes: Any) -> ProposalTask:
    fields = {
        "options": SamplingOptions(seed=5),
        "rule": Rule.BLOCK,
        "vocab_size": VOCABULARY,
        "prompt_length": 3,
        "length": 3,
        "step": 7,
        "max_tokens": 4,
        "min_confidence": 0.0,
    }
    return ProposalTask(**{**fields, **changes})


@given(weights=weight_lists)
def test_a_row_is_its_weights_to_within_a_count(weights: list[float]) -> None:
    tokens = list(range(10, 10 + len(weights)))
    row = count_row(tokens, weights)
    assert sum(row.counts) == TOTAL and min(row.counts) >= 1
    assert set(row.token_ids) <= set(tokens) and len(set(row.token_ids)) == len(row.token_ids)
    for token, weight in zip(tokens, weights, strict=True):
        count = dict(zip(row.token_ids, row.counts, strict=True)).get(token, 0)
        assert abs(count - TOTAL * weight / sum(weights)) <= len(weights) + 1


def test_what_rounding_leaves_goes_to_the_heaviest() -> None:
    assert list(count_row([5, 6, 7], [1, 10, 1]).counts) == [1398101, 13981014, 1398101]


@given(weights=weight_lists, bits=st.integers(0, 2**BITS - 1))
def test_a_token_is_drawn_as_from_a_row_of_the_model(weights: list[float], bits: int) -> None:
    row = count_row(list(range(len(weights))), weights)
    assert draw_token(row, bits) == draw_counts(CountRow(*(np.array(part, dtype=np.uint32) for part in row)), bits)


def test_every_count_of_a_row_is_one_draw() -> None:
    row = CountRow([4, 9, 2], [1, TOTAL - 3, 2])
    first, last = [draw << (BITS - 24) for draw in (0, 1)], [draw << (BITS - 24) for draw in (TOTAL - 3, TOTAL - 2)]
    assert [draw_token(row, bits) for bits in first] == [4, 9]
    assert [draw_token(row, bits) for bits in last] == [9, 2]
    assert draw_token(row, 2**BITS - 1) == 2


@given(weights=st.lists(weight_lists, min_size=1, max_size=4), dense=st.booleans())
def test_what_arrives_is_what_was_drawn_from(weights: list[list[float]], dense: bool) -> None:
    rows = [count_row(list(range(len(part))), part) for part in weights]
    tokens = [draw_token(row, 1 << 51) for row in rows]
    message = encode_dense(torch.stack([dense_row(row, VOCABULARY) for row in rows])) if dense else encode_counts(rows)
    decoded = decode(message, tokens, VOCABULARY)
    for i, row in enumerate(rows):
        arrived = zip(decoded.token_ids[i].tolist(), decoded.probabilities[i].tolist(), strict=True)
        assert {token: share for token, share in arrived if share} == {
            token: count / TOTAL for token, count in zip(row.token_ids, row.counts, strict=True)
        }
    all_one_hot = all(row.is_one_hot for row in rows)
    assert message.WhichOneof("encoding") == ("dense" if dense else "one_hot" if all_one_hot else "sparse")


@settings(max_examples=300)
@given(options=sampling_options(VOCABULARY), weights=weight_lists, output=st.integers(0, 8))
def test_shaping_is_the_pipeline_of_the_models(options: SamplingOptions, weights: list[float], output: int) -> None:
    """As if the weights were the exponentials of logits; penalties, which only the models know, left out."""
    options = SamplingOptions(
        **{**vars(options), "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    )
    shaping = Shaping(options, VOCABULARY)
    tokens = list(range(len(weights)))
    left = shaping.shape(Prediction(tokens, weights, sum(weights)), shaping.holds_back_stops(output))
    logits = np.full(VOCABULARY, -np.inf)
    logits[tokens] = np.log(weights)
    with np.errstate(invalid="ignore"):
        if not may_any_come(tokens, options, output):
            assert left is None
            return
        expected = plain_distribution(logits, options, [], [VOCABULARY] * output)
    assert left is not None
    shares = np.zeros(VOCABULARY)
    shares[list(left.token_ids)] = np.array(left.weights) / sum(left.weights)
    if len(set(weights)) == len(weights):  # ties may be cut otherwise
        assert np.abs(shares - expected).max() < 1e-9


def may_any_come(tokens: list[int], options: SamplingOptions, output: int) -> bool:
    stops = options.stop_token_ids if output < options.min_tokens else ()
    allowed = options.allowed_token_ids or tokens
    return any(t in allowed and t not in options.banned_token_ids and t not in stops for t in tokens)


def test_ids_beyond_the_vocabulary_are_not_proposed() -> None:
    drawn = draw_proposal(Fixed(Prediction([VOCABULARY, 3, VOCABULARY + 1], [5, 1, 5], 11.0)), a_task())
    assert drawn.tokens == [3] * 4
    assert draw_proposal(Fixed(Prediction([VOCABULARY], [1], 1.0)), a_task()) == Drawn([], [])


def test_where_the_options_leave_nothing_the_next_prediction_counts() -> None:
    predictions = Prediction([1, 2], [1, 1], 2.0), Prediction([2, 3], [1, 1], 2.0)
    options = SamplingOptions(banned_token_ids=(1, 2), seed=1)
    assert draw_proposal(Fixed(*predictions), a_task(options=options)).tokens == [3] * 4


def test_stop_tokens_are_held_back_until_min_tokens() -> None:
    options = SamplingOptions(temperature=0.0, min_tokens=2, stop_token_ids=(4,))
    predictor = Fixed(Prediction([4, 5], [9, 1], 10.0))
    assert draw_proposal(predictor, a_task(options=options)).tokens == [5, 5, 4, 4]
    assert draw_proposal(predictor, a_task(options=options, prompt_length=2)).tokens == [5, 4, 4, 4]


@pytest.mark.parametrize("rule", list(Rule))
def test_greedy_takes_the_heaviest_and_of_equals_the_first(rule: Rule) -> None:
    drawn = draw_proposal(
        Fixed(Prediction([7, 2, 9], [1, 4, 4], 9.0)), a_task(rule=rule, options=SamplingOptions(temperature=0.0))
    )
    assert drawn.tokens == [2] * 4
    assert drawn.rows == ([] if rule is Rule.COUPLED else [((2,), (TOTAL,))] * 4)


def test_a_proposal_ends_where_nothing_is_known() -> None:
    prediction = Prediction([7], [1], 2.0)
    assert draw_proposal(Fixed(prediction, end=2), a_task()).tokens == [7, 7]
    assert draw_proposal(Fixed(), a_task()) == Drawn([], [])


@given(seed=seeds, step=st.integers(0, 2**40))
def test_tokens_are_drawn_with_the_noise_of_their_step_and_offset(seed: int, step: int) -> None:
    prediction = Prediction([3, 1, 4], [3, 2, 1], 6.0)
    drawn = draw_proposal(Fixed(prediction), a_task(options=SamplingOptions(seed=seed), step=step))
    bits = random_bits(seed, Domain.DRAFT, step, 4).tolist()
    assert drawn.tokens == [draw_token(row, each) for row, each in zip(drawn.rows, bits, strict=True)]
    assert [draw_bits(seed, Domain.DRAFT, step, offset) for offset in range(4)] == bits
    assert [list(row.token_ids) for row in drawn.rows] == [[3, 1, 4]] * 4


@settings(max_examples=200)
@given(
    weights=st.dictionaries(st.integers(0, 300), st.floats(1e-6, 1e6), min_size=1, max_size=30),
    seed=seeds,
    position=st.integers(0, 2**32 - 1),
)
def test_the_coupled_choice_is_the_targets_for_the_same_row(
    weights: dict[int, float], seed: int, position: int
) -> None:
    row = torch.zeros(1, 301, dtype=torch.float64)
    row[0, list(weights)] = torch.tensor(list(weights.values()), dtype=torch.float64)
    assert choose_among(list(weights), list(weights.values()), seed, position) == int(choose(row, [seed], [position]))


def test_what_weighs_nothing_is_not_chosen() -> None:
    assert {choose_among([1, 2, 3], [0.0, 1.0, 0.0], seed, 3) for seed in range(50)} == {2}


def test_coupled_tokens_are_chosen_by_position_among_the_heaviest() -> None:
    tokens = list(range(COUPLED_CANDIDATES + 5))
    prediction = Prediction(tokens, [float(token + 1) for token in tokens], 1000.0)
    now = a_task(rule=Rule.COUPLED, vocab_size=100, length=11, max_tokens=6)
    drawn = draw_proposal(Fixed(prediction), now)
    heaviest = tokens[5:][::-1]
    expected = [choose_among(heaviest, [token + 1.0 for token in heaviest], 5, 11 + i) for i in range(6)]
    assert drawn == Drawn(expected, [])


@pytest.mark.parametrize(
    ("least", "count"), [(0.0, 6), (0.06, 5), (0.0625, 5), (0.2, 3), (0.5, 2), (0.51, 1), (1.0, 1)]
)
def test_a_proposal_ends_behind_tokens_that_are_believed_in_too_little(least: float, count: int) -> None:
    """Every token has half of the mass: 0.5, 0.25, 0.125, 0.0625, ... The token that went below is sent."""
    drawn = draw_proposal(Fixed(Prediction([1, 2], [1, 1], 2.0)), a_task(max_tokens=6, min_confidence=least))
    assert len(drawn.tokens) == len(drawn.rows) == count


def test_confidence_is_the_predictions_own_whatever_the_options() -> None:
    """At temperature 0 a token is certain to be drawn; how far it is to be believed in is another matter."""
    predictor = Fixed(Prediction([1, 2], [6, 2], 10.0))
    for options in (SamplingOptions(temperature=0.0), SamplingOptions(temperature=0.01, seed=3)):
        assert len(draw_proposal(predictor, a_task(options=options, min_confidence=0.3)).tokens) == 3  # 0.216 < 0.3


@given(vocab_size=st.integers(1, 300), seed=seeds, offset=st.integers(0, 5))
def test_a_uniform_row_is_a_window_of_the_vocabulary(vocab_size: int, seed: int, offset: int) -> None:
    (prediction,) = UniformPredictor(vocab_size, seed, 4).after([0] * offset)
    size = min(vocab_size, SUPPORT)
    assert list(prediction.token_ids) == [(prediction.token_ids[0] + i) % vocab_size for i in range(size)]
    assert len(set(prediction.token_ids)) == size and set(prediction.weights) == {1} and prediction.total == vocab_size


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_uniform_proposals_are_uniform(temperature: float) -> None:
    vocab_size, draws = 100, 4000
    counts = np.zeros(vocab_size)
    for seed in range(draws):
        now = a_task(options=SamplingOptions(seed=seed, temperature=temperature), vocab_size=vocab_size, max_tokens=1)
        counts[draw_proposal(UniformPredictor(vocab_size, seed, now.step), now).tokens] += 1
    assert chisquare(counts).pvalue > 1e-3


corpora = st.lists(st.integers(0, 5), min_size=2, max_size=80)


@settings(max_examples=200)
@given(corpus=corpora)
def test_tables_are_those_of_plain_counting(corpus: list[int]) -> None:
    tables = count_corpus(np.array(corpus), 7)
    assert tables.unigram.tolist() == [corpus.count(token) for token in range(7)]
    pairs = Counter(pairwise(corpus))
    for token in range(7):
        row = slice(tables.offsets[token], tables.offsets[token + 1])
        successors = dict(zip(tables.successors[row].tolist(), tables.counts[row].tolist(), strict=True))
        assert successors == {b: count for (a, b), count in pairs.items() if a == token and count > 1}
        assert list(successors.values()) == sorted(successors.values(), reverse=True)
    assert tables.offsets[-1] == len(tables.successors) == len(tables.counts)


def test_rows_of_tables_are_cut_to_the_most_frequent() -> None:
    following = [token for token in range(1, MAX_SUCCESSORS + 11) for _ in range(2 + (token > 10))]
    corpus = [token for follower in following for token in (0, follower)]
    tables = count_corpus(np.array(corpus), 100)
    kept = tables.successors[: tables.offsets[1]].tolist()
    assert len(kept) == MAX_SUCCESSORS and set(kept) == set(range(11, MAX_SUCCESSORS + 11))


def test_bigrams_go_back_to_the_unigram_row() -> None:
    tables = count_corpus(np.array([0, 1, 0, 1, 0, 2, 3, 1]), 6)
    unigram = UnigramPredictor(tables)
    (everywhere,) = unigram.after([5])
    assert (list(everywhere.token_ids), list(everywhere.weights), everywhere.total) == ([0, 1, 2, 3], [3, 3, 1, 1], 8)
    bigram = BigramPredictor(0, tables, unigram)
    assert list(bigram.after([])) == [Prediction([1], [2], 3.0), everywhere]
    assert list(bigram.after([4, 1])) == [Prediction([0], [2], 3.0), everywhere]
    for unknown in (2, 4, 5, 17):
        assert list(bigram.after([unknown])) == [everywhere]


@given(history=st.lists(st.integers(0, 2), min_size=1, max_size=30), seed=seeds, count=st.integers(1, 5))
def test_a_shorter_proposal_is_the_beginning_of_a_longer_one(history: list[int], seed: int, count: int) -> None:
    """Or the length would say something about what comes."""
    index = TokenIndex()
    index.follow(history, len(history))
    now = a_task(options=SamplingOptions(seed=seed), length=len(history), max_tokens=6)
    longer = draw_proposal(NgramPredictor(index), now)
    shorter = draw_proposal(NgramPredictor(index), now._replace(max_tokens=count))
    assert shorter.tokens == longer.tokens[:count] and shorter.rows == longer.rows[:count]
