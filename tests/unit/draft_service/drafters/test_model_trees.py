"""Trees of the draft model, without a model."""

import pytest
import torch

from draft_service.drafters import model as drafter
from draft_service.drafters.model_trees import TreeWork, new_growth
from specpair.errors import NotFiniteError
from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.trees.ranked_growth import GrowthLimits

VOCABULARY = 50
PROMPT = [3, 1, 4]
KINDS = {
    "block": SequenceOptions(sampling=SamplingOptions(seed=5)),
    "coupled": SequenceOptions(sampling=SamplingOptions(seed=5), rule=Rule.COUPLED),
    "greedy": SequenceOptions(sampling=SamplingOptions(temperature=0.0)),
}


def growing(options: SequenceOptions) -> TreeWork:
    held = HeldSequence(options, None, len(PROMPT), Sequence(list(PROMPT)), len(PROMPT))
    growth = new_growth(options, GrowthLimits(max_nodes=8, max_depth=4))
    return TreeWork(sequence=held.cached, row_count=1, held=held, step=7, growth=growth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_tree_ends_before_a_row_that_is_not_finite(kind: str, bad: float, level: int) -> None:
    """What was drawn is sent, as of a chain; if that is nothing, the call fails."""
    work, other = growing(KINDS[kind]), growing(KINDS[kind])
    before: list[int] = []
    for step in range(level + 1):
        noise = torch.Generator().manual_seed(step)
        logits = 2 * torch.randn(work.row_count, VOCABULARY, generator=noise).repeat(2, 1)
        if step == level:
            before = work.drafted().tokens
            logits[work.asked_rows[0], 45] = bad
        drafter.advance([work, other], logits)
    assert work.done and isinstance(work.error, NotFiniteError) == (level == 0)
    if level:
        assert work.drafted().tokens == before and work.sequence.tokens == PROMPT
    assert other.error is None and other.growth.depth == level + 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_nodes_are_fed_than_the_tree_may_have(kind: str) -> None:
    """The others have no room at the end of a sequence, and cost rows."""
    work, most = growing(KINDS[kind]), 0
    for step in range(4):
        noise = torch.Generator().manual_seed(step)
        drafter.advance([work], torch.randn(work.row_count, VOCABULARY, generator=noise))
        if work.done:
            break
        assert work.parents is not None and len(work.parents) == len(work.fed) == work.row_count - 1
        assert work.sequence.tokens[len(PROMPT) :] == [work.growth.token(node) for node in work.fed]
        assert set(work.growth.frontier) <= set(work.fed)
        most = max(most, len(work.fed))
    assert work.done and 1 < most <= 8
