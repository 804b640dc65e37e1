"""Drafting from guesses: the proposal of a drafter without a model, made on the spot.

Each token is drawn from exactly the distribution that is sent: brought into the form that travels first, then drawn
from its counts (rule 1 of exactness in the design). Where the guesses end, or are not believed in any more, the
proposal ends with the tokens drawn so far; that depends on kept tokens alone (rule 8).
"""

from typing import NamedTuple

from specpair.options import Rule, SamplingOptions
from specpair.speculation.count_row import CountRow, count_row, draw_token
from specpair.speculation.guess import Guess, Predictor
from specpair.speculation.randomness import Domain, draw_bits
from specpair.speculation.shaping import Candidates, Shaping
from specpair.speculation.sparse_gumbel import choose_among

COUPLED_CANDIDATES = 16
"""Under the coupled rule only so many of the heaviest tokens are considered: the noise of each costs microseconds."""


class Round(NamedTuple):
    """Where a proposal stands and what it may be."""

    options: SamplingOptions
    rule: Rule
    vocab_size: int
    """Ids at or above it are never proposed."""
    prompt_length: int
    length: int
    """Committed tokens."""
    step: int
    """At which the block will be verified."""
    max_tokens: int
    """Tokens at most."""
    min_confidence: float
    """No token is drawn behind tokens to which the guesses gave together a smaller share; 0 never stops."""


class Drawn(NamedTuple):
    """A proposal."""

    tokens: list[int]
    rows: list[CountRow]
    """What each token was drawn from; none under the coupled rule, where nothing of it travels."""


class Shaped(NamedTuple):
    """A guess, and what the options left of it."""

    guess: Guess
    candidates: Candidates


def draw_proposal(predictor: Predictor, now: Round) -> Drawn:
    """Up to `now.max_tokens` tokens; fewer, even none, where the predictor does not know how to go on."""
    shaping = Shaping(now.options, now.vocab_size)
    drawn = Drawn([], [])
    confidence = 1.0
    while len(drawn.tokens) < now.max_tokens and confidence >= now.min_confidence:
        shaped = best_guess(predictor, shaping, now, drawn.tokens)
        if shaped is None:
            break
        token = draw_next(shaped.candidates, now, drawn)
        if now.min_confidence:
            confidence *= share(shaped.guess, token)
    return drawn


def best_guess(predictor: Predictor, shaping: Shaping, now: Round, drafted: list[int]) -> Shaped | None:
    """The first guess of which the options leave a token."""
    holds_back_stops = shaping.holds_back_stops(now.length + len(drafted) - now.prompt_length)
    for guess in predictor.after(drafted):
        candidates = shaping.shape(guess, holds_back_stops)
        if candidates is not None:
            return Shaped(guess, candidates)
    return None


def draw_next(candidates: Candidates, now: Round, drawn: Drawn) -> int:
    """The next token as the rule wants it drawn, added with its row."""
    offset = len(drawn.tokens)
    if now.rule is Rule.COUPLED:
        token = choose_among(*_heaviest(candidates), now.options.seed, now.length + offset)
    else:
        row = count_row(*candidates)
        # What is certain needs no draw.
        token = row.token_ids[0] if row.is_one_hot else draw_token(row, _bits(now, offset))
        drawn.rows.append(row)
    drawn.tokens.append(token)
    return token


def share(guess: Guess, token: int) -> float:
    """What the guess gives to one of its tokens, as it is without options."""
    return guess.weights[guess.token_ids.index(token)] / guess.total


def _heaviest(candidates: Candidates) -> Candidates:
    """COUPLED_CANDIDATES of them, of equally heavy ones the first."""
    if len(candidates.token_ids) <= COUPLED_CANDIDATES:
        return candidates
    pairs = sorted(zip(*candidates, strict=True), key=lambda pair: -pair[1])[:COUPLED_CANDIDATES]
    return Candidates([token for token, _ in pairs], [weight for _, weight in pairs])


def _bits(now: Round, offset: int) -> int:
    return draw_bits(now.options.seed, Domain.DRAFT, now.step, offset)
