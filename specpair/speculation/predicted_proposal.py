"""Drafting from predictions: the proposal of a drafter without a model, made on the spot.

Each token is drawn from exactly the distribution that is sent: brought into the form that travels first, then drawn
from its counts (docs/exactness.md, rule 1). Where the predictions end, or are not believed in any more, the
proposal ends with the tokens drawn so far; that depends on kept tokens alone (rule 8).
"""

from typing import NamedTuple

from specpair.options import Rule, SamplingOptions
from specpair.speculation.count_row import CountRow, count_row, draw_token
from specpair.speculation.prediction import Prediction, Predictor
from specpair.speculation.randomness import Domain, draw_bits
from specpair.speculation.shaping import Candidates, Shaping
from specpair.speculation.sparse_gumbel import choose_among

COUPLED_CANDIDATES = 16
"""Under the coupled rule only so many of the heaviest tokens are considered: the noise of each costs microseconds."""


class ProposalTask(NamedTuple):
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
    """No token is drawn behind tokens to which the predictions gave together a smaller share; 0 never stops."""


class Drawn(NamedTuple):
    """A proposal."""

    tokens: list[int]
    rows: list[CountRow]
    """What each token was drawn from; none under the coupled rule, where nothing of it travels."""


class Shaped(NamedTuple):
    """A prediction, and what the options left of it."""

    prediction: Prediction
    candidates: Candidates


def draw_proposal(predictor: Predictor, task: ProposalTask) -> Drawn:
    """Up to `task.max_tokens` tokens; fewer, even none, where the predictor does not know how to go on."""
    shaping = Shaping(task.options, task.vocab_size)
    drawn = Drawn([], [])
    confidence = 1.0
    while len(drawn.tokens) < task.max_tokens and confidence >= task.min_confidence:
        shaped = best_prediction(predictor, shaping, task, drawn.tokens)
        if shaped is None:
            break
        token = draw_next(shaped.candidates, task, drawn)
        if task.min_confidence:
            confidence *= share(shaped.prediction, token)
    return drawn


def best_prediction(predictor: Predictor, shaping: Shaping, task: ProposalTask, drafted: list[int]) -> Shaped | None:
    """The first prediction of which the options leave a token."""
    holds_back_stops = shaping.holds_back_stops(task.length + len(drafted) - task.prompt_length)
    for prediction in predictor.after(drafted):
        candidates = shaping.shape(prediction, holds_back_stops)
        if candidates is not None:
            return Shaped(prediction, candidates)
    return None


def draw_next(candidates: Candidates, task: ProposalTask, drawn: Drawn) -> int:
    """The next token as the rule wants it drawn, added with its row."""
    offset = len(drawn.tokens)
    if task.rule is Rule.COUPLED:
        token = choose_among(*_heaviest(candidates), task.options.seed, task.length + offset)
    else:
        row = count_row(*candidates)
        # What is certain needs no draw.
        token = row.token_ids[0] if row.is_one_hot else draw_token(row, _bits(task, offset))
        drawn.rows.append(row)
    drawn.tokens.append(token)
    return token


def share(prediction: Prediction, token: int) -> float:
    """What the prediction gives to one of its tokens, as it is without options."""
    return prediction.weights[prediction.token_ids.index(token)] / prediction.total


def _heaviest(candidates: Candidates) -> Candidates:
    """COUPLED_CANDIDATES of them, of equally heavy ones the first."""
    if len(candidates.token_ids) <= COUPLED_CANDIDATES:
        return candidates
    pairs = sorted(zip(*candidates, strict=True), key=lambda pair: -pair[1])[:COUPLED_CANDIDATES]
    return Candidates([token for token, _ in pairs], [weight for _, weight in pairs])


def _bits(task: ProposalTask, offset: int) -> int:
    return draw_bits(task.options.seed, Domain.DRAFT, task.step, offset)
