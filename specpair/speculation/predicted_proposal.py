"""Drafting from predictions: the proposal of a drafter without a model.

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
from specpair.speculation.trees.drawing import first_offset

COUPLED_CANDIDATES = 16
"""Under the coupled rule only this many of the heaviest tokens are used: the noise of each takes microseconds."""


class ProposalTask(NamedTuple):
    """Position and limits of a proposal."""

    options: SamplingOptions
    rule: Rule
    vocab_size: int
    """Token ids at or above it are never proposed."""
    prompt_length: int
    length: int
    """Number of committed tokens."""
    step: int
    """The step that will verify the block."""
    max_tokens: int
    """Most tokens to propose."""
    min_confidence: float
    """Drafting stops once the product of the drawn tokens' shares is below this; 0 never stops."""
    draft_index: int = 0
    """Place among the drafts whose proposals are merged."""


class Drawn(NamedTuple):
    """A proposal."""

    tokens: list[int]
    rows: list[CountRow]
    """The row from which each token was drawn; empty under the coupled rule, where no rows are sent."""


class Shaped(NamedTuple):
    """A prediction, and the candidates that the options leave."""

    prediction: Prediction
    candidates: Candidates


def draw_proposal(predictor: Predictor, task: ProposalTask) -> Drawn:
    """Draws up to `task.max_tokens` tokens; fewer, even none, if the predictor has no prediction."""
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
    """The first prediction of which the options leave a candidate."""
    holds_back_stops = shaping.holds_back_stops(task.length + len(drafted) - task.prompt_length)
    for prediction in predictor.after(drafted):
        candidates = shaping.shape(prediction, holds_back_stops)
        if candidates is not None:
            return Shaped(prediction, candidates)
    return None


def draw_next(candidates: Candidates, task: ProposalTask, drawn: Drawn) -> int:
    """Draws the next token as the rule requires, and adds it with its row."""
    offset = len(drawn.tokens)
    if task.rule is Rule.COUPLED:
        token = choose_among(*_heaviest(candidates), task.options.seed, task.length + offset)
    else:
        row = count_row(*candidates)
        # A certain token needs no draw.
        token = row.token_ids[0] if row.is_one_hot else draw_token(row, _bits(task, offset))
        drawn.rows.append(row)
    drawn.tokens.append(token)
    return token


def share(prediction: Prediction, token: int) -> float:
    """The share of one of its tokens in a prediction, before options."""
    return prediction.weights[prediction.token_ids.index(token)] / prediction.total


def _heaviest(candidates: Candidates) -> Candidates:
    """The COUPLED_CANDIDATES heaviest candidates; of equally heavy ones the first."""
    if len(candidates.token_ids) <= COUPLED_CANDIDATES:
        return candidates
    pairs = sorted(zip(*candidates, strict=True), key=lambda pair: -pair[1])[:COUPLED_CANDIDATES]
    return Candidates([token for token, _ in pairs], [weight for _, weight in pairs])


def _bits(task: ProposalTask, offset: int) -> int:
    return draw_bits(task.options.seed, Domain.DRAFT, task.step, first_offset(task.draft_index) + offset)
