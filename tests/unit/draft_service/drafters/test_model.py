"""What draft and target make of logits, without a model: each sequence by its own options, whatever its company."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draft_service.drafters import model as drafter
from draft_service.drafters.model import ProposeWork
from specpair.errors import NotFiniteError
from specpair.options import Encoding, Rule, SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.counted_rows import SentRows
from specpair.speculation.sampling import SamplingRows, probabilities
from specpair.wire.counts import encode_counts
from specpair.wire.distributions import decode, encode_dense
from target_service import judging
from target_service.judged_round import JudgedRound
from target_service.verify_work import VerifyCall, VerifyWork

pytestmark = pytest.mark.usefixtures("arithmetic")

VOCABULARY = 50
PROMPT = [3, 1, 4]

SAMPLED = SamplingOptions(temperature=0.8, seed=5)
GREEDY = SamplingOptions(temperature=0.0)
HIDING = SamplingOptions(seed=2, allowed_token_ids=tuple(range(40)))
"""Leaves token 45 out, where a NaN could hide."""
KINDS = {
    "block": SequenceOptions(sampling=SAMPLED),
    "token": SequenceOptions(sampling=SAMPLED, rule=Rule.TOKEN),
    "top-p": SequenceOptions(sampling=replace(SAMPLED, top_p=0.9)),
    "coupled": SequenceOptions(sampling=SAMPLED, rule=Rule.COUPLED),
    "greedy": SequenceOptions(sampling=GREEDY),
    "greedy coupled": SequenceOptions(sampling=GREEDY, rule=Rule.COUPLED),
    "lenient": SequenceOptions(sampling=SAMPLED, rule=Rule.TOKEN, lenience=0.5),
    "greedy lenient": SequenceOptions(sampling=GREEDY, rule=Rule.TOKEN, lenience=0.5),
    "dense": SequenceOptions(sampling=SAMPLED, encoding=Encoding.DENSE),
    "greedy dense": SequenceOptions(sampling=GREEDY, encoding=Encoding.DENSE),
    "hiding": SequenceOptions(sampling=HIDING),
    "hiding coupled": SequenceOptions(sampling=HIDING, rule=Rule.COUPLED),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def random_logits(seed: int, count: int) -> Tensor:
    return 2 * torch.randn(count, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def propose(options: SequenceOptions, count: int) -> ProposeWork:
    held = HeldSequence(options, None, len(PROMPT), Sequence(list(PROMPT)), len(PROMPT))
    return ProposeWork(sequence=held.cached, row_count=1, held=held, step=7, count=count)


def drafted(options: SequenceOptions, count: int, seed: int) -> ProposeWork:
    work = propose(options, count)
    for step in range(count):
        drafter.advance([work], random_logits(seed + step, 1))
    return work


def verify(options: SequenceOptions, proposal: ProposeWork | None) -> VerifyWork:
    """Of a proposal as it comes over the wire."""
    tokens = proposal.tokens if proposal else []
    held = HeldSequence(options, None, len(PROMPT), Sequence([*PROMPT, *tokens]), len(PROMPT))
    call = VerifyCall(
        sequence_id="s", step=7, base_length=len(PROMPT), appended=[], proposed=tokens, draft=sent(proposal)
    )
    return VerifyWork(sequence=held.cached, row_count=len(tokens) + 1, held=held, call=call, vocab_size=VOCABULARY)


def sent(proposal: ProposeWork | None) -> SentRows:
    message = None
    if proposal is not None and proposal.dense:
        message = encode_dense(torch.stack(proposal.dense))
    elif proposal is not None and proposal.counts:
        message = encode_counts(proposal.counts)
    return decode(message, proposal.tokens if proposal else [], VOCABULARY)


def outcome(work: VerifyWork) -> tuple[list[JudgedRound], list[int], bool]:
    return work.rounds, work.sequence.tokens, work.done


@given(
    chosen=st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(0, 4)), min_size=1, max_size=6),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=60)
def test_a_sequence_is_judged_in_company_as_it_is_alone(chosen: list[tuple[str, int]], seed: int) -> None:
    proposals = [(KINDS[kind], drafted(KINDS[kind], count, seed) if count else None) for kind, count in chosen]
    together = [verify(*pair) for pair in proposals]
    logits = random_logits(seed + 9, sum(work.row_count for work in together))
    judging.advance_verification([*together], logits)
    for pair, work, rows in zip(proposals, together, logits.split([work.row_count for work in together]), strict=True):
        alone = verify(*pair)
        judging.advance_verification([alone], rows)
        assert outcome(work) == outcome(alone) and work.done


@given(chosen=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=6), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_a_sequence_is_drafted_in_company_as_it_is_alone(chosen: list[str], seed: int) -> None:
    together = [propose(KINDS[kind], 3) for kind in chosen]
    alone = [propose(KINDS[kind], 3) for kind in chosen]
    for step in range(3):
        logits = random_logits(seed + step, len(chosen))
        drafter.advance([*together], logits)
        for row, work in enumerate(alone):
            drafter.advance([work], logits[row : row + 1])
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens == one.sequence.tokens[len(PROMPT) :] and one.done
        assert sent(one).probabilities.tolist() == sent(other).probabilities.tolist()


BAD = pytest.mark.parametrize("bad", [torch.nan, torch.inf])


@pytest.mark.slow
@kinds
@BAD
@pytest.mark.parametrize("row", [0, 2, 3])
def test_the_target_fails_a_sequence_of_which_a_row_is_not_finite_and_no_other(kind: str, bad: float, row: int) -> None:
    """Also where the options hide it, and in a row that nothing depends on."""
    others = [name for name in KINDS if name != kind and "hiding" not in name]
    works = [verify(KINDS[name], drafted(KINDS[name], 3, 1)) for name in (kind, *others)]
    logits = random_logits(3, 4 * len(works))
    logits[row, 45] = bad
    judging.advance_verification([*works], logits)
    assert isinstance(works[0].error, NotFiniteError) and works[0].done
    assert [(work.error, work.done) for work in works[1:]] == [(None, True)] * len(others)


@kinds
@BAD
def test_the_draft_ends_before_a_row_that_is_not_finite(kind: str, bad: float) -> None:
    """What was drawn is sent; if that is nothing, the call fails."""
    for step in range(2):
        work, other = propose(KINDS[kind], 3), propose(KINDS["block"], 3)
        for i in range(step + 1):
            logits = random_logits(i, 2)
            if i == step:
                logits[0, 45] = bad
            drafter.advance([work, other], logits)
        assert work.done and len(work.tokens) == step and isinstance(work.error, NotFiniteError) == (step == 0)
        assert len(work.counts or work.dense) == (0 if work.options.rule is Rule.COUPLED else step)
        assert not other.done and len(other.tokens) == step + 1


@kinds
def test_the_target_alone_draws_the_bonus_of_a_block_of_nothing(kind: str) -> None:
    work = verify(KINDS[kind], None)
    logits = random_logits(1, 1)
    judging.advance_verification([work], logits)
    assert work.path == [] and work.sequence.tokens == [*PROMPT, work.next_token]
    if KINDS[kind].sampling.is_greedy:
        assert work.next_token == int(np.argmax(logits.numpy()))


LISTED = [1, 8, 21, 22, 49]
OTHERS = [token for token in range(VOCABULARY) if token not in LISTED]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "hiding" not in kind])
def test_a_reduced_vocabulary_is_drawn_from_and_sent_as_a_whole_distribution(kind: str) -> None:
    """Tokens that the draft never gives have a logit of -inf; the others share all of the mass, in every form."""
    options = KINDS[kind]
    work, logits = propose(options, 3), random_logits(3, 3)
    listed = probabilities(logits[:, LISTED], SamplingRows([options.sampling], [3])).numpy()
    logits[:, OTHERS] = -torch.inf
    for step in range(3):
        drafter.advance([work], logits[step : step + 1].clone())
    assert work.done and set(work.tokens) <= set(LISTED)
    if options.rule is not Rule.COUPLED:
        rows = np.zeros((3, VOCABULARY))
        np.add.at(rows, (np.arange(3)[:, None], sent(work).token_ids), sent(work).probabilities)
        assert np.abs(rows.sum(-1) - 1.0).max() < 1e-12
        assert np.abs(rows[:, LISTED] - listed).max() < 2.0**-8
