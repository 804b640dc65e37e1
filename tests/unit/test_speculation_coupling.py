import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.speculation.coupling import verify_coupled
from specpair.speculation.gumbel import choose


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_a_draft_token_counts_while_it_is_what_the_target_chooses(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(sum(lengths) + len(lengths), 6, generator=generator).softmax(-1)
    seeds = [seed + b for b, length in enumerate(lengths) for _ in range(length + 1)]
    positions = [10 + row for length in lengths for row in range(length + 1)]
    choices = choose(target, seeds, positions).split([length + 1 for length in lengths])
    proposed = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    expected = []
    for b, (length, chosen) in enumerate(zip(lengths, choices, strict=True)):
        agreeing = int(torch.randint(length + 1, (), generator=generator))
        proposed[b, :length] = chosen[:length]
        if agreeing < length:
            proposed[b, agreeing] = (chosen[agreeing] + 1) % 6
        expected.append((agreeing, int(chosen[agreeing])))
    verdicts = verify_coupled(target, proposed, torch.tensor(lengths), seeds, positions)
    assert list(zip(verdicts.accepted_counts.tolist(), verdicts.next_tokens.tolist(), strict=True)) == expected
