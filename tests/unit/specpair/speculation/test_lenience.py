import pytest
import torch
from torch import Tensor

from specpair.options import Rule
from specpair.speculation.draft_rows import DraftRows
from specpair.speculation.lenience import Lenience, closeness
from specpair.speculation.verification import (
    Block,
    acceptance_thresholds,
    count_accepted,
    packed_rows,
    residual_weights,
)


def judged(target: Tensor, draft: Tensor, factor: float, *, greedy: bool = False) -> tuple[Tensor, Tensor]:
    """For each token that could be drafted: its chance to be accepted [V], and what follows a rejection [V, V]."""
    width = len(draft)
    tokens = torch.arange(width)[:, None]
    rows = target.expand(2 * width, -1)
    near = closeness(target.log().expand(2 * width, -1), 2 * tokens, tokens)
    lenience = Lenience(torch.full((width,), factor, dtype=torch.float64), torch.full((width,), greedy), near)
    q = draft.double().expand(width, 1, width)
    drafted = DraftRows.of(torch.arange(width).expand(width, 1, width), q, tokens)
    lengths = torch.ones(width, dtype=torch.long)
    block = Block(tokens, lengths, drafted, torch.from_numpy(packed_rows([1] * width, 1)), Rule.TOKEN, lenience)
    if greedy:
        rows = torch.nn.functional.one_hot(target.argmax(), width).double().expand(2 * width, -1)
    thresholds = acceptance_thresholds(rows, block)
    weights = residual_weights(rows, block, thresholds, torch.zeros(width, dtype=torch.long))
    return thresholds.acceptance[:, 0], weights / weights.sum(-1, keepdim=True)


def random_pair(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(2, 7, generator=generator, dtype=torch.float64) * 1.5).softmax(-1)
    return first, second


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.3, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_no_token_comes_more_often_than_promised(factor: float, seed: int) -> None:
    target, draft = random_pair(seed)
    accepted, following = judged(target, draft, factor)
    emitted = draft * accepted + ((draft * (1 - accepted))[:, None] * following).sum(0)
    assert float((draft * accepted).sum()) == pytest.approx(float(torch.minimum(target / factor, draft).sum()))
    assert bool((emitted <= target / factor + 1e-12).all())
    assert bool((emitted - target).abs().max() > 1e-3) is (factor < 1.0)


def test_greedy_accepts_what_is_nearly_as_likely_as_the_best() -> None:
    target = torch.tensor([0.4, 0.25, 0.19, 0.16], dtype=torch.float64)
    accepted, following = judged(target, torch.full((4,), 0.25, dtype=torch.float64), 0.5, greedy=True)
    assert accepted.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert following[2].tolist() == [1.0, 0.0, 0.0, 0.0]
    strict, _ = judged(target, torch.tensor([0.25] * 4, dtype=torch.float64), 1.0, greedy=True)
    assert strict.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_padding_is_never_accepted() -> None:
    """A short proposal beside a long one: what its padding is as likely as says nothing."""
    lengths = torch.tensor([1, 3])
    drafted = DraftRows.of(torch.zeros(2, 3, 1, dtype=torch.long), torch.ones(2, 3, 1), torch.zeros(2, 3))
    lenience = Lenience(torch.tensor([0.5, 0.5]), torch.tensor([True, True]), torch.ones(2, 3, dtype=torch.float64))
    rows = torch.from_numpy(packed_rows([1, 3], 3))
    block = Block(torch.zeros(2, 3, dtype=torch.long), lengths, drafted, rows, Rule.TOKEN, lenience)
    thresholds = acceptance_thresholds(torch.ones(6, 1, dtype=torch.float64), block)
    accepted = count_accepted(thresholds.acceptance, block, torch.full((2, 3), 0.5, dtype=torch.float64))
    assert accepted.tolist() == [1, 3]
