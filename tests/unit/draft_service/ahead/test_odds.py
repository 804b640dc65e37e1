"""Which outcomes are prepared: the likeliest, as far as outcomes have shown; never the token that was rejected."""

import random
from collections.abc import Callable

import pytest

from draft_service.ahead.odds import AllOdds, Odds, Rate, Row
from draft_service.ahead.outcomes import Guess, Outcome, best
from specpair.options import Rule, SamplingOptions
from specpair.speculation.outlook import Outlook

LENGTH = 4
VOCABULARY = 12


def outlook(*shares: float) -> Outlook:
    """Tokens 0, 1, .. with these shares."""
    return Outlook(list(range(len(shares))), list(shares))


def row(drawn: int | None, *shares: float) -> Row:
    return Row(drawn, outlook(*shares))


def test_the_rejected_token_is_never_guessed() -> None:
    guesses = Odds().guesses(2, row(0, 0.6, 0.3, 0.1), 0.5)
    assert [guess.outcome for guess in guesses] == [Outcome(2, 1), Outcome(2, 2)]
    assert [guess.outcome.next_token_id for guess in Odds().guesses(4, row(None, 0.6, 0.4), 0.5)] == [0, 1]


def test_the_chances_of_all_counts_sum_to_one() -> None:
    odds = Odds()
    rows = [row(0, 0.9, 0.1), row(1, 0.5, 0.5), row(9, 0.5, 0.5)]
    assert sum(odds.counts(rows)) == pytest.approx(1.0)
    assert rows[2].confidence == 0.0 and rows[0].confidence == 0.9


def test_the_best_come_first_and_none_that_ends_the_output() -> None:
    guesses = [Guess(Outcome(0, 5), 0.1), Guess(Outcome(1, 6), 0.4), Guess(Outcome(2, 7), 0.3)]
    assert [guess.outcome for guess in best(guesses, 2)] == [Outcome(1, 6), Outcome(2, 7)]
    assert [guess.outcome for guess in best(guesses, 2, ends=[6])] == [Outcome(2, 7), Outcome(0, 5)]


def test_what_is_too_unlikely_is_left_out_unless_there_is_nothing_else() -> None:
    guesses = [Guess(Outcome(0, 5), 0.1), Guess(Outcome(1, 6), 0.4), Guess(Outcome(2, 7), 0.3)]
    assert [guess.outcome for guess in best(guesses, 3, least=0.2)] == [Outcome(1, 6), Outcome(2, 7)]
    assert [guess.outcome for guess in best(guesses, 3, least=0.3)] == [Outcome(1, 6), Outcome(2, 7)]
    assert [guess.outcome for guess in best(guesses, 3, least=0.5)] == [Outcome(1, 6)]
    assert best([], 3, least=0.5) == []


def test_a_rate_follows_what_happens_lately() -> None:
    rate = Rate()
    assert rate.among(0.3) == pytest.approx(0.3)
    for _ in range(2000):
        rate.add(True)
    assert rate.among(0.3) > 0.95
    for _ in range(2000):
        rate.add(False)
    assert rate.among(0.3) < 0.05


def test_acceptance_is_learnt_by_how_sure_the_draft_was() -> None:
    odds, sure, unsure = Odds(), row(0, 0.99, 0.01), row(0, 0.4, 0.35)
    for _ in range(200):
        odds.learn([sure], None, Outcome(1, 3))
        odds.learn([unsure], None, Outcome(0, 1))
    assert odds.acceptance(sure) > 0.9 and odds.acceptance(unsure) < 0.1


def test_a_rank_that_rows_do_not_have_becomes_unlikely() -> None:
    odds = Odds()
    before = odds.bonus_chances(1.0)
    for _ in range(200):
        odds.learn([], row(None, 0.6, 0.4), Outcome(0, 0))
    after = odds.bonus_chances(1.0)
    assert after[0] > 0.9 and all(new < old / 10 for new, old in zip(after[1:], before[1:], strict=True))


@pytest.mark.parametrize("least", [0.0, 0.01, 0.03, 0.1, 0.3])
def test_only_guesses_that_are_likely_enough_are_returned_or_the_likeliest(least: float) -> None:
    odds, bonus = Odds(), row(None, 0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05)
    for token in (0, 0, 0, 1, 1, 2):
        odds.learn([], bonus, Outcome(0, token))
    every = odds.guesses(0, bonus, 0.2)
    assert len(every) == 8
    expected = [guess for guess in every if guess.probability >= least] or every[:1]
    assert odds.guesses(0, bonus, 0.2, least) == expected


def test_groups_learn_apart_and_greedy_is_one_of_all_rules() -> None:
    everything = AllOdds()
    hot, cold = SamplingOptions(temperature=1.0), SamplingOptions(temperature=0.0)
    assert everything.of(Rule.BLOCK, hot) is everything.of(Rule.BLOCK, SamplingOptions(temperature=1.2))
    assert everything.of(Rule.BLOCK, hot) is not everything.of(Rule.COUPLED, hot)
    assert everything.of(Rule.BLOCK, hot) is not everything.of(Rule.BLOCK, SamplingOptions(temperature=0.5))
    assert everything.of(Rule.BLOCK, cold) is everything.of(Rule.COUPLED, cold)


class World:
    """A pair whose target accepts as often as the draft's share says, and else takes one of the next tokens."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def rows(self) -> tuple[list[Row], Row]:
        return [self._row(0) for _ in range(LENGTH)], self._row(None)

    def outcome(self, rows: list[Row], bonus: Row) -> Outcome:
        accepted = 0
        while accepted < LENGTH and self._random.random() < rows[accepted].confidence:
            accepted += 1
        tokens, shares = (rows[accepted] if accepted < LENGTH else bonus).guesses
        if self._random.random() < 0.15:
            return Outcome(accepted, VOCABULARY)
        return Outcome(accepted, self._random.choices(tokens, shares)[0])

    def _row(self, drawn: int | None) -> Row:
        top = self._random.choice([0.45, 0.7, 0.98])
        return Row(drawn, outlook(top, *((1 - top) * 0.5**i for i in range(1, 7))))


Choose = Callable[[Odds, list[Row], Row], list[Guess]]


def learnt(odds: Odds, rows: list[Row], bonus: Row) -> list[Guess]:
    counts = odds.counts(rows)
    guesses = [guess for n, one in enumerate(rows) for guess in odds.guesses(n, one, counts[n])]
    return best([*guesses, *odds.guesses(LENGTH, bonus, counts[-1])], 10)


def uniform(odds: Odds, rows: list[Row], bonus: Row) -> list[Guess]:
    return [guess for n, one in enumerate([*rows, bonus]) for guess in odds.guesses(n, one, 1.0)[:2]]


def hit_rate(choose: Choose, rounds: int = 3000) -> float:
    world, odds, hits = World(1), Odds(), 0
    for _ in range(rounds):
        rows, bonus = world.rows()
        chosen = {guess.outcome for guess in choose(odds, rows, bonus)}
        outcome = world.outcome(rows, bonus)
        hits += outcome in chosen
        odds.learn(rows, bonus, outcome)
    return hits / rounds


def test_ten_learnt_rows_hit_more_often_than_two_at_each_position() -> None:
    """Simulated: 0.75 against 0.68."""
    by_odds, by_width = hit_rate(learnt), hit_rate(uniform)
    assert by_odds > by_width + 0.05
