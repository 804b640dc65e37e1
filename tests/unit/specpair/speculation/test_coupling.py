from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpair.options import Rule, SamplingOptions
from specpair.speculation.coupling import verify_choices, verify_coupled
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.gumbel import choose
from specpair.speculation.sampling import SamplingRows, likeliest, probabilities
from specpair.speculation.verification import verify
from tests.unit.specpair.speculation.test_verification import Proposal, as_block, padded, random_proposal


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_a_draft_token_counts_while_it_is_what_the_target_chooses(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(sum(lengths) + len(lengths), 6, generator=generator).softmax(-1)
    seeds = [seed + b for b, length in enumerate(lengths) for _ in range(length + 1)]
    positions = [10 + row for length in lengths for row in range(length + 1)]
    choices = choose(target, seeds, positions).split([length + 1 for length in lengths])
    proposed, expected = [], []
    for length, chosen in zip(lengths, choices, strict=True):
        agreeing = int(torch.randint(length + 1, (), generator=generator))
        tokens = chosen[:length].tolist()
        if agreeing < length:
            tokens[agreeing] = (tokens[agreeing] + 1) % 6
        proposed.append(tokens)
        expected.append((agreeing, int(chosen[agreeing])))
    assert verify_coupled(target, proposed, seeds, positions) == expected


@pytest.mark.parametrize("rule", list(Rule))
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_greedy_targets_are_judged_as_if_they_were_sampled(rule: Rule, lengths: list[int], seed: int) -> None:
    """The short way by what the target chooses gives what the rule makes of one-hot rows, whatever the draft."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(6, (sum(lengths) + len(lengths), 8), generator=generator).float()  # with ties
    greedy = SamplingOptions(temperature=0.0)
    target = probabilities(logits, SamplingRows([greedy] * len(lengths), [length + 1 for length in lengths]))
    batch = [random_proposal(seed + b, length, rule, vocab_size=8) for b, length in enumerate(lengths)]
    own = logits.split([length + 1 for length in lengths])
    batch = [with_some_right(one, rows.argmax(-1), generator) for one, rows in zip(batch, own, strict=True)]
    tokens = [one.tokens.tolist() for one in batch]
    choices, finite = likeliest(logits)
    verdicts = verify_choices(choices, tokens)
    assert all(finite)
    if rule is Rule.COUPLED:
        seeds = [b for b, length in enumerate(lengths) for _ in range(length + 1)]
        assert verdicts == verify_coupled(target, tokens, seeds, range(len(logits)))
    else:
        uniforms, keys = padded([one.accept_uniforms for one in batch], 0.0), torch.arange(len(batch))
        expected = verify(target, as_block(batch), uniforms, keys, keys)
        assert verdicts == list(zip(expected.accepted_counts.tolist(), expected.next_tokens.tolist(), strict=True))


def with_some_right(one: Proposal, written: Tensor, generator: torch.Generator) -> Proposal:
    """Half of the tokens are what the target would have written, where its row gave that a chance."""
    sent = torch.from_numpy(one.draft.token_ids)
    possible = ((sent == written[:-1, None]) & (torch.from_numpy(one.draft.probabilities) > 0)).any(-1)
    right = possible & (torch.rand(len(one.tokens), generator=generator) < 0.5)
    tokens = torch.where(right, written[:-1], one.tokens)
    draft = DraftRows.of(one.draft.token_ids, one.draft.probabilities, tokens.numpy())
    return replace(one, tokens=tokens, draft=draft)
