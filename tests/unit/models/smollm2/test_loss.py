"""The loss and the gradient that is worked out by hand."""

import pytest
import torch
from torch import Tensor

from models.smollm2.loss import DistillationLoss, Teacher, Weights, row_losses

ROWS, OUTPUTS, KEPT = 12, 40, 8


def teacher() -> Teacher:
    generator = torch.Generator().manual_seed(1)
    columns = torch.stack([torch.randperm(OUTPUTS, generator=generator)[:KEPT] for _ in range(ROWS)])
    probabilities = torch.rand(ROWS, KEPT, generator=generator).softmax(-1) * 0.9
    probabilities[:, 5] = 0  # a token that the draft cannot say
    return Teacher(columns=columns, probabilities=probabilities, cold=torch.arange(ROWS) % 2 == 0)


def plain_loss(logits: Tensor, teacher: Teacher, weights: Weights) -> Tensor:
    """The same loss in autograd's hands."""
    p = torch.zeros(ROWS, OUTPUTS).scatter_add(1, teacher.columns, teacher.probabilities)
    mass = p.sum(-1, keepdim=True)
    divergence = torch.where(p > 0, p * ((p / mass).clamp_min(1e-9).log() - logits.log_softmax(-1)), 0.0).sum()
    heat = torch.where(teacher.cold, weights.heat, 1.0)[:, None]
    sharp = p ** (1 / heat)
    sharp = sharp / sharp.sum(-1, keepdim=True) * mass
    overlap = torch.minimum(sharp, (logits / heat).softmax(-1)).sum()
    return (1 - weights.overlap) * divergence - weights.overlap * overlap


@pytest.mark.parametrize("weights", [Weights(overlap=0.0, heat=0.5), Weights(overlap=0.7, heat=0.5)])
def test_gradient_is_autograds(weights: Weights) -> None:
    torch.manual_seed(2)
    logits = (3 * torch.randn(ROWS, OUTPUTS)).requires_grad_()
    plain = plain_loss(logits, teacher(), weights)
    plain.backward()
    divergence, overlap, gradient = row_losses(logits.detach().clone(), teacher(), weights)
    assert torch.allclose((1 - weights.overlap) * divergence - weights.overlap * overlap, plain, atol=1e-4)
    assert logits.grad is not None
    assert torch.allclose(gradient, logits.grad, atol=1e-5)


def test_a_draft_that_is_the_teacher_loses_nothing() -> None:
    columns = torch.arange(OUTPUTS).expand(ROWS, -1)
    logits = torch.randn(ROWS, OUTPUTS)
    same = Teacher(columns=columns, probabilities=logits.softmax(-1), cold=torch.zeros(ROWS, dtype=torch.bool))
    divergence, overlap, _ = row_losses(logits.clone(), same, Weights(overlap=0.5, heat=0.5))
    assert divergence.item() == pytest.approx(0, abs=1e-4)
    assert overlap.item() == pytest.approx(ROWS, abs=1e-3)


def test_hidden_states_get_the_mean_gradient_of_the_head() -> None:
    torch.manual_seed(4)
    hidden, head = torch.randn(ROWS, 16, requires_grad=True), torch.randn(OUTPUTS, 16).bfloat16()
    weights = Weights(overlap=0.3, heat=0.5)
    DistillationLoss.apply(hidden, head, teacher(), weights).backward()
    again = hidden.detach().clone().requires_grad_()
    (plain_loss(again @ head.float().mT, teacher(), weights) / ROWS).backward()
    assert hidden.grad is not None and again.grad is not None
    assert torch.nn.functional.cosine_similarity(hidden.grad.flatten(), again.grad.flatten(), dim=0) > 0.995
